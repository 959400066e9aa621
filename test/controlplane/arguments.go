// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"net/netip"
	"strings"
)

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
	if c.Address.IsLoopback() {
		bind = c.Address
	}
	args := []string{
		"--etcd-servers=" + c.etcdURL(c.EtcdClientPort),
		"--advertise-address=" + c.Address.String(), "--bind-address=" + bind.String(), fmt.Sprintf("--secure-port=%d", c.Port),
		"--tls-cert-file=" + c.key("apiserver.crt"), "--tls-private-key-file=" + c.key("apiserver.key"),
		"--client-ca-file=" + c.key("ca.crt"),
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
