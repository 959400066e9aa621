// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a real Kubernetes cluster on one machine, for tests that need kubelets, a
// container runtime and frames on a wire.
//
// Each node is a set of namespaces (package machine). Two bridges in a separate namespace are the switches: one for
// the management network, one for the underlay. The underlay interface of every node is ul0. To cut a node off, a
// test pulls a cable at the switch: the node keeps its addresses and routes, and its pods keep running.
//
//	machine  172.30.0.1 ─┐
//	control plane    .10 ─┼─ br-mgmt      br-ul ─┬─ ul0 of n1 (parent of macvlans)
//	n1, n2, …  .11, .12 ─┤                       ├─ ul0 of n2 …
//	                     │                       ├─ foreign hosts
//	               .254 ─┴── router (optional) ──┘
//	                          └─ outside host
//
// A cluster outlives the process that started it. Down ends it.
package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"
)

// DefaultPrefix names the cluster of `make cluster-up`.
const DefaultPrefix = "fl"

const (
	// nodeMonitorGrace is how long a node may be silent before it is NotReady: four renewals of its Lease.
	nodeMonitorGrace = 8 * time.Second
	// toleration is how long pods stay on such a node before they are deleted.
	toleration = 2 * time.Second
)

// Options describe a cluster. The zero value of a field means its default.
type Options struct {
	// Prefix begins the names of all namespaces, cgroups and links; at most six characters. Clusters with different
	// prefixes and Management networks can run at the same time. Default "fl".
	Prefix string
	// Nodes is the number of nodes, n1, n2 and so on. Default 3.
	Nodes int
	// Management is the network between the API server and the nodes, an IPv4 /24. Default 172.30.0.0/24.
	Management netip.Prefix
	// KubeProxy is the mode of kube-proxy on every node, Nftables or IPTables. Default: no kube-proxy.
	KubeProxy string
	// Gateways are the addresses of a router on the underlay, with the lengths of the subnets' prefixes; at most
	// one of each family. The router also has a leg on the management network, and an outside host behind it. Nodes
	// and pods reach each other through it, and nodes forward packets. Default: no router.
	Gateways []netip.Prefix `json:",omitempty"`
	// MoreGateways are addresses of the router in further subnets of the underlay.
	MoreGateways []netip.Prefix `json:",omitempty"`
	// DualStack adds IPv6 to the management network, the nodes and the range of cluster IPs.
	DualStack bool
	// IPv6Only takes IPv4 from the cluster. Management then only tells it from others.
	IPv6Only bool
	// Snooping makes the switch of the underlay snoop MLD and IGMP, with a querier.
	Snooping bool
	// SingleNIC takes the nodes off the management network: their own addresses are on the underlay interface, in
	// the subnets of the Gateways, and they reach the API server through the router.
	SingleNIC bool
	// Bridged makes pods on the underlay ports of a bridge on their node, in place of macvlans.
	Bridged bool `json:",omitempty"`
	// Images are tarballs that every node imports before its kubelet starts;
	// those of the tests (package images) are always there.
	Images []string
	// Progress receives a line for each step. Default: none.
	Progress io.Writer `json:"-"`
}

// Whole returns the options of a cluster in which pods are whole Kubernetes pods: kube-proxy, both
// families, and a router with the gateways that docs/start.md, the examples and package scenario name.
// `make cluster-up`, the demo and test/e2e start this cluster.
func Whole() Options {
	return Options{KubeProxy: Nftables, DualStack: true, Gateways: Gateways(), MoreGateways: documentedGateways()}
}

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if len(o.Prefix) > 6 {
		return o, fmt.Errorf("prefix %q has more than six characters", o.Prefix)
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if !o.Management.IsValid() {
		o.Management = netip.MustParsePrefix("172.30.0.0/24")
	}
	if !o.Management.Addr().Is4() || o.Management.Bits() != 24 {
		return o, fmt.Errorf("management network %s is no IPv4 /24", o.Management)
	}
	if o.KubeProxy != "" && o.KubeProxy != Nftables && o.KubeProxy != IPTables {
		return o, fmt.Errorf("kube-proxy has no mode %q", o.KubeProxy)
	}
	if o.SingleNIC && len(o.Gateways) == 0 {
		return o, errors.New("nodes with a single interface reach the API server through a router: set Gateways")
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return o, nil
}

// Modes of kube-proxy.
const (
	Nftables = "nftables"
	IPTables = "iptables"
)

// Parent is the interface of each node that the pods' interfaces lead to.
func (o Options) Parent() string {
	if o.Bridged {
		return bridgeUplink
	}
	return UnderlayInterface
}

// Names of namespaces and links.
func (o Options) switchName() string       { return o.Prefix + "-sw" }
func (o Options) controlPlaneName() string { return o.Prefix + "-cp" }
func (o Options) nodeName(n int) string    { return o.Prefix + "-" + NodeName(n) }
func (o Options) hostName(h string) string { return o.Prefix + "-h-" + h }
func (o Options) managementLink() string   { return o.Prefix + "-mgmt" }
func managementPort(owner string) string   { return "mgmt-" + owner }
func underlayPort(owner string) string     { return "ul-" + owner }

func (o Options) routerName() string  { return o.Prefix + "-rt" }
func (o Options) outsideName() string { return o.Prefix + "-out" }

const (
	managementBridge = "br-mgmt"
	underlayBridge   = "br-ul"
	outsideBridge    = "br-out"
	managementIface  = "mgmt0"
	// podBridge has the pods of a node as its ports, and bridgeUplink as the way to the underlay.
	podBridge, bridgeUplink = "br0", "up0"
	// UnderlayInterface is the node's interface on the underlay.
	UnderlayInterface = "ul0"
)

// NodeName returns the name of the Node with that number, counted from 1.
func NodeName(n int) string { return fmt.Sprintf("n%d", n) }

// Numbers of hosts on the management network. A node has the same number on the underlay if that is
// its only network.
const (
	machineHost      = 1
	controlPlaneHost = 10 // nodes follow
	routerHost       = 254
)

// Gateways returns the addresses of a router in the subnets that package scenario uses.
func Gateways() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.78.0.1/16"), netip.MustParsePrefix("fd78::1/64")}
}

// documentedGateways returns the gateways of the pools and IPSubnets in docs/start.md and examples/.
func documentedGateways() []netip.Prefix {
	var gateways []netip.Prefix
	for _, g := range []string{
		"10.20.0.1/24", "fd00:20::1/64", "10.21.0.1/24", "fd00:21::1/64", "10.22.0.1/24", "10.23.0.1/24",
		"10.24.0.1/22", "10.26.0.1/16", "10.27.0.1/16", "10.28.0.1/16", "10.29.0.1/24", "10.31.0.1/24",
		"10.33.0.1/24", "10.34.0.1/24", "10.41.0.1/24",
	} {
		gateways = append(gateways, netip.MustParsePrefix(g))
	}
	return gateways
}

// outsideNetworks are the networks behind the router, with the router's addresses. RFC 5737 and RFC
// 3849 reserve them for examples.
func (o Options) outsideNetworks() []netip.Prefix {
	return o.ofFamilies(netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8::1/64"))
}

// outsideHost is the number of the outside host in each outside network.
const outsideHost = 10

// management returns the networks between the API server and the nodes.
func (o Options) management() []netip.Prefix {
	six := netip.MustParseAddr("fd30::").As16()
	six[3] = o.Management.Addr().As4()[2]
	return o.ofFamilies(o.Management.Masked(), netip.PrefixFrom(netip.AddrFrom16(six), 64))
}

// address returns the first address of a host on the management network.
func (o Options) address(host int) netip.Addr { return nth(o.management()[0], host) }

// nodeAddresses returns the addresses of a node, with the lengths of their prefixes.
func (o Options) nodeAddresses(n int) []netip.Prefix {
	networks := o.management()
	if o.SingleNIC {
		networks = o.subnets(o.Gateways)
	}
	return hostIn(networks, controlPlaneHost+n)
}

// subnets returns the subnets of these gateways, of the families of the cluster.
func (o Options) subnets(gateways []netip.Prefix) []netip.Prefix {
	var subnets []netip.Prefix
	for _, g := range o.ofFamilies(gateways...) {
		subnets = append(subnets, g.Masked())
	}
	return subnets
}

// ofFamilies returns the prefixes that are of a family of the cluster.
func (o Options) ofFamilies(prefixes ...netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool {
		if p.Addr().Is4() {
			return o.IPv6Only
		}
		return !o.IPv6Only && !o.DualStack
	})
}

// services returns the ranges of cluster IPs.
func (o Options) services() []netip.Prefix {
	return o.ofFamilies(netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112"))
}

// nameServers returns the cluster IPs of CoreDNS, where nothing answers before InstallDNS.
func (o Options) nameServers() []netip.Addr { return addrs(hostIn(o.services(), dnsHost)) }

// hostIn returns the addresses of a host in networks, with the lengths of their prefixes.
func hostIn(networks []netip.Prefix, host int) []netip.Prefix {
	var found []netip.Prefix
	for _, n := range networks {
		found = append(found, netip.PrefixFrom(nth(n, host), n.Bits()))
	}
	return found
}

// nth returns the address of a network that ends with host.
func nth(network netip.Prefix, host int) netip.Addr {
	raw := network.Masked().Addr().AsSlice()
	raw[len(raw)-1] = byte(host)
	addr, _ := netip.AddrFromSlice(raw)
	return addr
}

func addrs(prefixes []netip.Prefix) []netip.Addr {
	var found []netip.Addr
	for _, p := range prefixes {
		found = append(found, p.Addr())
	}
	return found
}
