// SPDX-License-Identifier: Apache-2.0

package thirdparty

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/test/must"
)

// Component is a project whose binaries are built from its Go module.
type Component struct {
	// Name is the directory of the tool module under modules/.
	Name string
	// Module is the module whose version is the component's version.
	Module string
	// Package is built into one binary called Binary: "." is the main.go of the tool module. When it is empty, all
	// tools of the module are built, each under its own name.
	Package, Binary string
	// TestPackage is a package whose test binary is built as well, as <last element>.test.
	TestPackage string
	// CProgram is a folder of the module, whose src folder holds a program in C of this name.
	CProgram string
	// tags are build tags, with commas.
	tags string
	// linkFlags returns the linker flags of the project's own release build. Without a version,
	// kubelet and kube-apiserver refuse each other.
	linkFlags func(version string) string
}

// Names of the components.
const (
	Kubernetes       = "kubernetes"
	KubernetesOldest = "kubernetes-oldest" // kube-apiserver of the oldest supported minor
	E2E              = "e2e"               // the e2e tests of Kubernetes, their server agnhost, and the command that runs them in parallel
	Etcd             = "etcd"
	EtcdTools        = "etcdtools" // etcdctl and etcdutl
	Containerd       = "containerd"
	ContainerdOldest = "containerd-oldest"
	CRIO             = "crio"
	CNIPlugins       = "cniplugins"
	CNITuning        = "tuning"   // the reference plugin that changes the MAC of an interface
	SRIOVCNI         = "sriovcni" // the plugin that moves virtual functions
	OVSCNI           = "ovscni"   // the plugin that makes ports of Open vSwitch
	Multus           = "multus"   // the thin plugin, and daemon and shim of the thick one
	Whereabouts      = "whereabouts"
	CoreDNS          = "coredns" // with the plugins of a cluster's usual configuration only
	Helm             = "helm"
	ControllerGen    = "controller-gen"
	CRDRefDocs       = "crd-ref-docs"
	GolangciLint     = "golangci-lint"
)

// components returns every component, keyed by its name.
func components() map[string]Component {
	list := []Component{
		{Name: Kubernetes, Module: "k8s.io/kubernetes", linkFlags: kubernetesVersion},
		{Name: KubernetesOldest, Module: "k8s.io/kubernetes", linkFlags: kubernetesVersion},
		{Name: E2E, Module: "k8s.io/kubernetes", TestPackage: "k8s.io/kubernetes/test/e2e", linkFlags: kubernetesVersion},
		{Name: Etcd, Module: "go.etcd.io/etcd/server/v3", Package: "go.etcd.io/etcd/server/v3", Binary: "etcd"},
		{Name: EtcdTools, Module: "go.etcd.io/etcd/etcdutl/v3"},
		{Name: Containerd, Module: "github.com/containerd/containerd/v2", linkFlags: variable("github.com/containerd/containerd/v2/version.Version")},
		{Name: ContainerdOldest, Module: "github.com/containerd/containerd", linkFlags: variable("github.com/containerd/containerd/version.Version")},
		{Name: CRIO, Module: "github.com/cri-o/cri-o", CProgram: "pinns", tags: "containers_image_openpgp,exclude_graphdriver_btrfs,btrfs_noversion"},
		{Name: CNIPlugins, Module: "github.com/containernetworking/plugins"},
		{Name: CNITuning, Module: "github.com/containernetworking/plugins"},
		{Name: SRIOVCNI, Module: "github.com/intel/sriov-cni"},
		{Name: OVSCNI, Module: "github.com/k8snetworkplumbingwg/ovs-cni", Package: "github.com/k8snetworkplumbingwg/ovs-cni/cmd/plugin", Binary: "ovs"},
		{Name: Multus, Module: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4",
			linkFlags: variable("gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/multus.version")},
		{Name: Whereabouts, Module: "github.com/k8snetworkplumbingwg/whereabouts", Package: "github.com/k8snetworkplumbingwg/whereabouts/cmd", Binary: "whereabouts"},
		{Name: CoreDNS, Module: "github.com/coredns/coredns", Package: ".", Binary: "coredns"},
		{Name: Helm, Module: "helm.sh/helm/v4", linkFlags: variable("helm.sh/helm/v4/internal/version.version")},
		{Name: ControllerGen, Module: "sigs.k8s.io/controller-tools"},
		{Name: CRDRefDocs, Module: "github.com/elastic/crd-ref-docs"},
		{Name: GolangciLint, Module: "github.com/golangci/golangci-lint/v2"},
	}
	byName := make(map[string]Component, len(list))
	for _, c := range list {
		byName[c.Name] = c
	}
	return byName
}

func find(name string) (Component, error) {
	all := components()
	if c, ok := all[name]; ok {
		return c, nil
	}
	names := slices.Collect(maps.Keys(all))
	for _, u := range unpackedComponents() {
		names = append(names, u.name)
	}
	slices.Sort(names)
	return Component{}, fmt.Errorf("no component %q (there are %s)", name, strings.Join(names, ", "))
}

// variable sets one string variable of the binary to the version.
func variable(path string) func(string) string {
	return func(version string) string { return "-X " + path + "=" + version }
}

// kubernetesVersion sets the variables that `hack/lib/version.sh` of Kubernetes sets in a release.
func kubernetesVersion(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	values := []string{
		"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor,
		"gitTreeState=clean", "gitCommit=unknown", "buildDate=1970-01-01T00:00:00Z",
	}
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range values {
			flags = append(flags, "-X "+pkg+"."+v)
		}
	}
	return strings.Join(flags, " ")
}

// mainModule is the first line of the project's go.mod.
const mainModule = "module github.com/fenceline/fenceline\n"

// Root returns the project's directory: the nearest one, from the working
// directory upwards, whose go.mod is the project's.
func Root() (_ string, err error) {
	defer must.CatchIn(&err, "find the project's directory")
	dir := must.Value(os.Getwd())
	for start := dir; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), mainModule) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of the project at or above %s", start)
		}
	}
}

// CacheDir returns the cache directory, which all checkouts share: ${FENCELINE_CACHE:-$HOME/.cache/fenceline}.
func CacheDir() (_ string, err error) {
	defer must.CatchIn(&err, "find the cache directory")
	if dir := os.Getenv("FENCELINE_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	return filepath.Join(must.Value(os.UserHomeDir()), ".cache", "fenceline"), nil
}

var errNotRequired = errors.New("not required by go.mod")

// requiredVersion reads the version of module from the text of a go.mod.
func requiredVersion(gomod, module string) (string, error) {
	for line := range strings.Lines(gomod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("version of %s: %w", module, errNotRequired)
}
