// SPDX-License-Identifier: Apache-2.0

// Package machine runs a Kubernetes node as a set of namespaces of this
// machine: network, mount, PID, UTS and IPC. The node has a writable /etc, /opt,
// /var and /run of its own, its own BPF file system and its own cgroups, and runs
// a container runtime, kubelet and, if wanted, kube-proxy.
//
// Boot and StartDaemon run inside the node; everything else runs outside.
package machine

import (
	"net/netip"
	"time"
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
	// Addresses are the node's, at most one of each family. At the first one, the API server reaches
	// kubelet.
	Addresses []netip.Addr
	// Runtime is the container runtime: Containerd or CRIO.
	Runtime string
	// Path lists the directories of third-party binaries.
	Path []string
	// CNIPlugins is a directory whose files are copied to /opt/cni/bin.
	CNIPlugins string
	// CNIConfig is written to /etc/cni/net.d. Empty leaves the directory empty:
	// the node is NotReady until something else configures a network.
	CNIConfig string
	// PauseImage is the sandbox image; one of Images must hold it.
	PauseImage string
	// Images are tarballs to import before kubelet starts.
	Images []string
	// Kubelet and Proxy connect kubelet and kube-proxy to the API server. An
	// empty Proxy means no kube-proxy.
	Kubelet, Proxy []byte
	// ProxyMode is kube-proxy's: nftables or iptables.
	ProxyMode string
	// ClusterDNS are the name servers of pods. Without any, every pod gets a warning event.
	ClusterDNS []netip.Addr
	// Authority signs the API server's client certificate; ServingCert and
	// ServingKey are kubelet's own.
	Authority, ServingCert, ServingKey []byte
	// LeaseDuration is the duration of the Node's Lease, in whole seconds.
	// kubelet renews it four times as often.
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
