// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// knownInIPAM are the fields of "ipam" that the plugin reads. An ADD refuses those of routingConf.
func knownInIPAM(chained bool) []string {
	known := []string{"type", "standalone", "socket", "spool", "status_grace", "mode", "hostLink", "hostLinkCIDRs", "txQueueLen"}
	if chained {
		return known
	}
	return append(known, "default_ipv4_ippool", "default_ipv6_ippool", "routes", "clean_gateway")
}

// knownBeside are the fields beside "type" of a chained configuration that have an effect, or that
// the CNI specification and its conventions define.
func knownBeside() []string {
	return []string{
		"type", "ipam", "master", "mode", "hostLink", "hostLinkCIDRs", "txQueueLen",
		"cniVersion", "cniVersions", "name", "args", "capabilities", "runtimeConfig", "dns", "prevResult", "disableCheck", "disableGC",
	}
}

// ignoredFields returns the fields that nobody reads, sorted. Their authors may rely on them. The
// fields beside "type" of another plugin are for that plugin.
func ignoredFields(stdin []byte, chained bool) []string {
	var beside map[string]json.RawMessage
	if err := json.Unmarshal(stdin, &beside); err != nil {
		return nil
	}
	var in map[string]json.RawMessage
	if json.Unmarshal(beside["ipam"], &in) != nil {
		in = nil
	}
	var ignored []string
	for key := range in {
		if !isKnown(key, knownInIPAM(chained)) {
			ignored = append(ignored, "ipam."+key)
		}
	}
	for key := range beside {
		if chained && !isKnown(key, knownBeside()) && !strings.HasPrefix(key, "cni.dev/") {
			ignored = append(ignored, key)
		}
	}
	slices.Sort(ignored)
	return ignored
}

// isKnown compares as encoding/json does, without case.
func isKnown(key string, known []string) bool {
	return slices.ContainsFunc(known, func(other string) bool { return strings.EqualFold(key, other) })
}

// addNetwork returns the network of an ADD. Only an ADD reads fields that older versions ignored: a
// DEL must not fail because of them.
func (c *netConf) addNetwork() (agentapi.Network, error) {
	n := c.network()
	n.Ignored = c.ignored
	if c.chained() {
		return n, nil
	}
	if text := c.IPAM.CleanGateway; text != nil {
		if err := json.Unmarshal(text, &n.CleanGateway); err != nil {
			return n, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"ipam.clean_gateway" is %s: write true or false`, text)
		}
	}
	if c.IPAM.Routes == nil {
		return n, nil
	}
	var routes []types.Route
	if err := json.Unmarshal(c.IPAM.Routes, &routes); err != nil {
		return n, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"ipam.routes" is %s: %w; write [{"dst": "10.0.0.0/8", "gw": "192.0.2.1"}]`, c.IPAM.Routes, err)
	}
	for _, r := range routes {
		route := agentapi.Route{Dst: prefix(r.Dst).Masked(), GW: addr(r.GW)}
		if !route.Dst.IsValid() || route.GW.IsValid() && route.GW.Is4() != route.Dst.Addr().Is4() {
			return n, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"ipam.routes" has a route to %q through %q: dst and gw must be of one family`, r.Dst.String(), r.GW)
		}
		n.Routes = append(n.Routes, route)
	}
	return n, nil
}
