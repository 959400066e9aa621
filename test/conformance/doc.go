// SPDX-License-Identifier: Apache-2.0

// Package conformance runs cases of Kubernetes' own e2e tests on a cluster of package test/cluster,
// and accounts for every case that the test binary has.
//
// The binary is built from the version of Kubernetes that the cluster runs (package test/thirdparty).
// The list of cases and the names of the images come from the binary, so a new version of Kubernetes
// brings its new cases.
package conformance
