// SPDX-License-Identifier: Apache-2.0

// Package machine runs a Kubernetes node as a set of namespaces of this machine: network, mount, PID, UTS and IPC.
// The node has a writable /etc, /opt, /var and /run of its own, its own BPF file system and its own cgroups, and
// runs a container runtime, kubelet and, if wanted, kube-proxy.
//
// Boot and StartDaemon run inside the node; everything else runs outside.
package machine

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// Config describes one node. It is handed to the node's first process as JSON.
type Config struct {
	// Name is the host name and the name of the Node object.
	Name string
	// Dir keeps the node's disk, configuration and logs. It must be on a file
	// system that overlayfs can use for its upper layer.
	Dir string
	// Cgroup is the node's own group below the root of every hierarchy.
	Cgroup string
	// Addresses are the node's, at most one of each family. At the first one, the API server reaches kubelet.
	Addresses []netip.Addr
	// Runtime is the container runtime: Containerd or CRIO.
	Runtime string
	// Path lists the directories of third-party binaries.
	Path []string
	// CNIPlugins is a directory whose files are copied to /opt/cni/bin. /etc/cni/net.d is empty: the node is
	// NotReady until something else configures a network.
	CNIPlugins string
	// PauseImage is the sandbox image; one of Images must hold it.
	PauseImage string
	// Images are tarballs to import before kubelet starts.
	Images []string
	// Kubelet and Proxy connect kubelet and kube-proxy to the API server. An empty Proxy means no kube-proxy.
	Kubelet, Proxy []byte
	// ProxyMode is kube-proxy's: nftables or iptables.
	ProxyMode string
	// ClusterDNS are the name servers of pods. Without any, every pod gets a warning event.
	ClusterDNS []netip.Addr
	// Authority signs the API server's client certificate; ServingCert and ServingKey are kubelet's own.
	Authority, ServingCert, ServingKey []byte
	// LeaseDuration is the duration of the Node's Lease, in whole seconds. kubelet renews it four times as often.
	LeaseDuration time.Duration
}

// Names of the daemons of a node, beside its container runtime.
const (
	Kubelet   = "kubelet"
	KubeProxy = "kube-proxy"
)

// Paths inside a node.
const (
	cniConfigDir  = "/etc/cni/net.d"
	cniPluginDir  = "/opt/cni/bin"
	kubernetesDir = "/etc/kubernetes"
	daemonsFile   = "/run/machine/daemons.json"
)

// kubeletConfig: nothing is evicted or collected because this machine's disk happens to be nearly
// full ("0%" turns a threshold off), and a node's state is reported within two seconds.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {{index .Addresses 0}}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/kubelet.key
healthzBindAddress: 127.0.0.1
containerRuntimeEndpoint: unix://{{.RuntimeSocket}}
cgroupDriver: cgroupfs
cgroupRoot: /{{.Cgroup}}
failCgroupV1: false
failSwapOn: false
resolvConf: /etc/kubernetes/resolv.conf
clusterDomain: cluster.local
clusterDNS: [{{.NameServers}}]
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: "0%", imagefs.available: "0%"}
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 1m
nodeLeaseDurationSeconds: {{.LeaseSeconds}}
serializeImagePulls: false
maxPods: 250
`

// nameServer is the node's own, and that of CoreDNS. Nothing answers there.
const nameServer = "192.0.2.53"

// LeaseSeconds is for the template.
func (c Config) LeaseSeconds() int { return int(c.LeaseDuration.Seconds()) }

// RuntimeSocket is for the template.
func (c Config) RuntimeSocket() string { return c.runtime().socket }

// NameServers is for the template.
func (c Config) NameServers() string {
	return `"` + strings.ReplaceAll(join(c.ClusterDNS), ",", `", "`) + `"`
}

// writeFiles writes the configuration of the node's daemons, inside the node.
func (c Config) writeFiles() (err error) {
	defer must.Catch(&err)
	kubelet := render(kubeletConfig, c)
	files := map[string][]byte{
		filepath.Join(kubernetesDir, "kubelet.yaml"):    kubelet,
		filepath.Join(kubernetesDir, "resolv.conf"):     []byte("nameserver " + nameServer + "\n"),
		filepath.Join(kubernetesDir, "ca.crt"):          c.Authority,
		filepath.Join(kubernetesDir, "kubelet.crt"):     c.ServingCert,
		filepath.Join(kubernetesDir, "kubelet.key"):     c.ServingKey,
		filepath.Join(kubernetesDir, "kubeconfig"):      c.Kubelet,
		filepath.Join(kubernetesDir, "kube-proxy.conf"): c.Proxy,
	}
	for path, text := range c.runtime().files {
		files[path] = render(text, c)
	}
	for path, data := range files {
		must.OK(os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(os.WriteFile(path, data, 0o700))
	}
	copyFiles(c.CNIPlugins, cniPluginDir)
	return nil
}

func render(text string, data any) []byte {
	t := must.Value(template.New("").Option("missingkey=error").Parse(text))
	var out bytes.Buffer
	must.OK(t.Execute(&out, data))
	return out.Bytes()
}

// copyFiles copies the visible files of one directory into another.
func copyFiles(from, to string) {
	entries := must.Value(os.ReadDir(from))
	must.OK(os.MkdirAll(to, 0o755))
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		data := must.Value(os.ReadFile(filepath.Join(from, e.Name())))
		must.Done(os.WriteFile(filepath.Join(to, e.Name()), data, 0o755), "copy %s to %s", e.Name(), to)
	}
}
