// SPDX-License-Identifier: Apache-2.0

// Package uninstall tests what `helm uninstall` does, with the real helm on a
// real API server with the controllers of Kubernetes. The kubelet is the test's.
package uninstall
