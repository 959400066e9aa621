// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler as processes of this machine.
package controlplane

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Config describes the programs, directories, addresses and time limits of a control plane.
type Config struct {
	// Dir holds keys, etcd's data, logs and the list of running processes.
	Dir string
	// Command returns a command that runs where the control plane shall live.
	Command func(ctx context.Context, path string, args ...string) *exec.Cmd `json:"-"`

	// EtcdDir holds etcd; APIServerDir holds kube-apiserver; KubernetesDir the controllers.
	EtcdDir, APIServerDir, KubernetesDir string

	// Address and Port are where clients reach the API server.
	Address netip.Addr
	Port    int
	// EtcdClientPort and EtcdPeerPort are on 127.0.0.1.
	EtcdClientPort, EtcdPeerPort int
	// Services are the ranges of cluster IPs, at most one of each family. The first address of the first
	// one is the API server's.
	Services []netip.Prefix
	// PodsAreRouted says that the API server reaches pods by their addresses. It asks webhooks and
	// extension servers there: kube-proxy does not run beside it.
	PodsAreRouted bool

	// WithoutControllers leaves out what controllers would have to make first,
	// such as a ServiceAccount for every pod.
	WithoutControllers bool
	// NodeMonitorGrace is how long a node may be silent before it is NotReady.
	NodeMonitorGrace time.Duration
	// Toleration is how long pods stay on a node that is not ready or not reachable.
	Toleration time.Duration
}

// URL returns the API server's address for clients.
func (c Config) URL() string {
	return "https://" + netip.AddrPortFrom(c.Address, uint16(c.Port)).String()
}

func (c Config) etcdData() string        { return filepath.Join(c.Dir, "etcd") }
func (c Config) keys() string            { return filepath.Join(c.Dir, "keys") }
func (c Config) key(name string) string  { return filepath.Join(c.keys(), name) }
func (c Config) tokens() string          { return c.key("tokens.csv") }
func (c Config) log(name string) string  { return filepath.Join(c.Dir, "log", name+".log") }
func (c Config) etcdURL(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }

// Kubeconfig returns the file with which a client of that name connects: "admin", or a component.
func (c Config) Kubeconfig(client string) string { return c.key(client + ".kubeconfig") }

// seconds is how Kubernetes' toleration flags want a duration.
func seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }

const (
	frontProxyClient = "front-proxy-client"
	// etcdName is the only member's.
	etcdName = "test"
)

// etcdArguments returns the arguments of etcd. It needs no fsync: the data ends with the cluster.
func (c Config) etcdArguments() []string {
	client, peer := c.etcdURL(c.EtcdClientPort), c.etcdURL(c.EtcdPeerPort)
	return []string{
		"--name=" + etcdName, "--data-dir=" + c.etcdData(), "--unsafe-no-fsync",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + etcdName + "=" + peer,
	}
}

func (c Config) apiServerArguments() []string {
	bind := netip.IPv4Unspecified()
	switch {
	case c.Address.IsLoopback():
		bind = c.Address
	case c.Address.Is6():
		bind = netip.IPv6Unspecified()
	}
	args := []string{
		"--etcd-servers=" + c.etcdURL(c.EtcdClientPort),
		"--advertise-address=" + c.Address.String(), "--bind-address=" + bind.String(), fmt.Sprintf("--secure-port=%d", c.Port),
		"--tls-cert-file=" + c.key("apiserver.crt"), "--tls-private-key-file=" + c.key("apiserver.key"),
		"--client-ca-file=" + c.key("ca.crt"), "--token-auth-file=" + c.tokens(),
		"--kubelet-client-certificate=" + c.key("kubelet-client.crt"), "--kubelet-client-key=" + c.key("kubelet-client.key"),
		"--kubelet-certificate-authority=" + c.key("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.key("service-account.key"), "--service-account-signing-key-file=" + c.key("service-account.key"),
		"--service-cluster-ip-range=" + join(c.Services),
		"--requestheader-client-ca-file=" + c.key("front-proxy-ca.crt"), "--requestheader-allowed-names=" + frontProxyClient,
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + c.key("front-proxy.crt"), "--proxy-client-key-file=" + c.key("front-proxy.key"),
		"--profiling=false", "--shutdown-delay-duration=0s",
	}
	if c.WithoutControllers {
		args = append(args, "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	}
	if c.PodsAreRouted {
		args = append(args, "--enable-aggregator-routing")
	}
	if c.Toleration > 0 {
		args = append(args,
			fmt.Sprintf("--default-not-ready-toleration-seconds=%d", seconds(c.Toleration)),
			fmt.Sprintf("--default-unreachable-toleration-seconds=%d", seconds(c.Toleration)))
	}
	return args
}

// join lists prefixes as flags want them.
func join(prefixes []netip.Prefix) string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ",")
}

// clientArguments connect a controller to the API server.
func (c Config) clientArguments(client string) []string {
	file := c.Kubeconfig(client)
	return []string{
		"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file,
		"--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false",
	}
}

// controllerManagerArguments: a test cuts nodes off one after the other, so the
// controller must not save evictions up for a large cluster.
func (c Config) controllerManagerArguments() []string {
	args := c.clientArguments("controller-manager")
	if c.WithoutControllers {
		// Several may run on this machine, and nobody asks them anything.
		args = append(args, "--secure-port=0")
	}
	return append(args,
		"--use-service-account-credentials", "--service-account-private-key-file="+c.key("service-account.key"),
		"--root-ca-file="+c.key("ca.crt"),
		"--kube-api-qps=300", "--kube-api-burst=500",
		"--node-monitor-period=1s", "--node-monitor-grace-period="+c.NodeMonitorGrace.String(),
		"--node-eviction-rate=100", "--secondary-node-eviction-rate=100", "--large-cluster-size-threshold=0",
	)
}

func (c Config) schedulerArguments() []string {
	return append(c.clientArguments("scheduler"), "--kube-api-qps=300", "--kube-api-burst=500")
}
