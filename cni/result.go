// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// result returns the agent's answer as the abbreviated result of an IPAM plugin. It has no
// interfaces, and its ips name none (CNI specification, section 5).
func result(answer *agentapi.AddResponse) (*types100.Result, error) {
	if len(answer.IPs) == 0 {
		return nil, agentapi.Errorf(agentapi.CodeInternal, "read the agent's answer: it has no address; are plugin and agent of the same release?")
	}
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	for _, ip := range answer.IPs {
		if !ip.Address.IsValid() {
			return nil, agentapi.Errorf(agentapi.CodeInternal, "read the agent's answer: an address is missing; are plugin and agent of the same release?")
		}
		r.IPs = append(r.IPs, &types100.IPConfig{Address: ipNet(ip.Address), Gateway: ip.Gateway.AsSlice()})
	}
	for _, route := range answer.Routes {
		if !route.Dst.IsValid() {
			return nil, agentapi.Errorf(agentapi.CodeInternal, "read the agent's answer: a route has no destination; are plugin and agent of the same release?")
		}
		r.Routes = append(r.Routes, &types.Route{Dst: ipNet(route.Dst.Masked()), GW: route.GW.AsSlice()})
	}
	return r, nil
}

// configured returns the addresses of the interface with that name inside the container, and those
// that name no interface: some plugins leave the index out of version 0.3.1 results.
func configured(r *types100.Result, ifname string) []agentapi.ConfiguredAddress {
	var found []agentapi.ConfiguredAddress
	for _, ip := range r.IPs {
		c := agentapi.ConfiguredAddress{Address: prefix(ip.Address), Gateway: addr(ip.Gateway)}
		if ip.Interface != nil && *ip.Interface >= 0 && *ip.Interface < len(r.Interfaces) {
			i := r.Interfaces[*ip.Interface]
			if i.Name != ifname || i.Sandbox == "" {
				continue
			}
			c.Interface, c.MAC = i.Name, i.Mac
		}
		if c.Address.IsValid() {
			found = append(found, c)
		}
	}
	return found
}

// setMAC records the MAC of the interface with that name inside the container. An IPAM plugin may give
// the interface another MAC than the plugin that made it has recorded, and its CHECK compares.
func setMAC(r *types100.Result, ifname, mac string) {
	for _, i := range r.Interfaces {
		if mac != "" && i.Name == ifname && i.Sandbox != "" {
			i.Mac = mac
		}
	}
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// addr returns the zero Addr for no address.
func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefix(n net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr(n.IP), bits)
}
