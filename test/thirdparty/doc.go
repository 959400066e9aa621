// Package thirdparty installs and builds everything that the tests need and
// the project does not contain: Debian packages, and binaries of Kubernetes,
// etcd, containerd, the reference CNI plugins, Multus, helm and the linters.
//
// Binaries are built from their Go modules. Each project has a tool module of
// its own under modules/, because their dependency versions contradict each
// other and must not reach the project's go.mod. What was built is kept in
//
//	${FENCELINE_CACHE:-$HOME/.cache/fenceline}/<name>-<version>-<go version>/
//
// and is built again only when the version, the sums or the build flags change.
// QEMU and the kernels of its guests are packages of other suites, which are
// unpacked into the cache and not installed.
// The package uses the standard library alone, so that it runs first on a fresh
// machine.
package thirdparty
