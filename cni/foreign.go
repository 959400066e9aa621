// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// knownFields are the fields of "ipam" that the plugin reads.
func knownFields() []string {
	return []string{"type", "default_ipv4_ippool", "default_ipv6_ippool", "socket", "spool", "status_grace", "routes", "clean_gateway"}
}

// ignoredFields returns the other fields of "ipam", sorted. Their authors may rely on them.
func ignoredFields(stdin []byte) []string {
	var conf struct {
		IPAM map[string]json.RawMessage `json:"ipam"`
	}
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(conf.IPAM)), func(key string) bool {
		return slices.Contains(knownFields(), key)
	})
}

// addNetwork returns the network of an ADD. Only an ADD reads fields that older versions ignored: a
// DEL must not fail because of them.
func (c *netConf) addNetwork() (agentapi.Network, error) {
	n := c.network()
	n.Ignored = c.IPAM.ignored
	if text := c.IPAM.CleanGateway; text != nil {
		if err := json.Unmarshal(text, &n.CleanGateway); err != nil {
			return n, badConfig.errorf(`"ipam.clean_gateway" is %s: write true or false`, text)
		}
	}
	if c.IPAM.Routes == nil {
		return n, nil
	}
	var routes []types.Route
	if err := json.Unmarshal(c.IPAM.Routes, &routes); err != nil {
		return n, badConfig.errorf(`"ipam.routes" is %s: %w; write [{"dst": "10.0.0.0/8", "gw": "192.0.2.1"}]`, c.IPAM.Routes, err)
	}
	for _, r := range routes {
		route := agentapi.Route{Dst: prefix(r.Dst).Masked(), GW: addrOf(r.GW)}
		if !route.Dst.IsValid() || route.GW.IsValid() && route.GW.Is4() != route.Dst.Addr().Is4() {
			return n, badConfig.errorf(`"ipam.routes" has a route to %q through %q: dst and gw must be of one family`, r.Dst.String(), r.GW)
		}
		n.Routes = append(n.Routes, route)
	}
	return n, nil
}

// addrOf returns the zero Addr for an address that is not set.
func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}
