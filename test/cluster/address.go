// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/netip"
	"slices"
)

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
func (o Options) nameServers() []netip.Addr {
	return addrs(hostIn(o.services(), dnsHost))
}

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
