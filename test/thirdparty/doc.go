// SPDX-License-Identifier: Apache-2.0

// Package thirdparty installs and builds the software that the tests need and that the project does
// not contain: Debian packages, and binaries of Kubernetes, etcd, containerd, the reference CNI
// plugins, Multus, helm and the linters.
//
// Binaries are built from Go modules. Each project has a separate tool module under modules/, because
// the dependency versions of these projects contradict each other and must not reach the go.mod of
// this project. Where they agree with each other and with this project, a package is compiled once:
// containerd, helm, CoreDNS and etcd together then take 3 min after Kubernetes. Builds are kept in
//
//	${FENCELINE_CACHE:-$HOME/.cache/fenceline}/<name>-<version>-<go version>/
//
// and repeated only if the version, the sums or the build flags change. QEMU and the kernels of its
// guests are Debian packages of other suites, which are unpacked into the cache and not installed.
//
// The package imports only the standard library, so that it runs first on a fresh machine.
package thirdparty
