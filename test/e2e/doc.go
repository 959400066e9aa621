// SPDX-License-Identifier: Apache-2.0

// Package e2e plays every scenario of test/scenario on one cluster, with the build tag cluster.
package e2e
