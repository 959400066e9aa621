// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"

	"github.com/fenceline/fenceline/cni/agentapi"
)

const mostCIDRs = 256

// routingConf are the fields about host link and routes. They belong beside "type" of a chained
// fenceline. "mode" is also a field of macvlan and ipvlan. Only an ADD decodes them: a DEL must not
// fail because of them.
type routingConf struct {
	Mode          json.RawMessage `json:"mode"`
	HostLink      json.RawMessage `json:"hostLink"`
	HostLinkCIDRs json.RawMessage `json:"hostLinkCIDRs"`
	TxQueueLen    json.RawMessage `json:"txQueueLen"`
}

func (c routingConf) decode() (agentapi.Routing, error) {
	var r agentapi.Routing
	var err error
	if r.Mode, err = decodeMode(c.Mode); err != nil {
		return agentapi.Routing{}, err
	}
	if c.HostLink != nil {
		if err := json.Unmarshal(c.HostLink, &r.HostLink); err != nil {
			return agentapi.Routing{}, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"hostLink" is %s: write true or false, or remove it for the default of the mode`, c.HostLink)
		}
	}
	if r.Mode == agentapi.ModeOff && r.HostLink != nil && *r.HostLink {
		return agentapi.Routing{}, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"hostLink" is true and "mode" is "off", which makes no host link: remove one of the two`)
	}
	if r.HostLinkCIDRs, err = decodeCIDRs(c.HostLinkCIDRs); err != nil {
		return agentapi.Routing{}, err
	}
	if c.TxQueueLen != nil {
		// The kernel takes 32 bits, and refuses a negative length.
		if err := json.Unmarshal(c.TxQueueLen, &r.TxQueueLen); err != nil || r.TxQueueLen < 0 || r.TxQueueLen > math.MaxInt32 {
			return agentapi.Routing{}, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig,
				`"txQueueLen" is %s: write a number of frames from 0 to %d; 0 is the default of the kernel`, c.TxQueueLen, math.MaxInt32)
		}
	}
	return r, nil
}

// decodeMode returns an empty mode if there is none.
func decodeMode(text json.RawMessage) (agentapi.Mode, error) {
	if text == nil || string(text) == "null" {
		return "", nil
	}
	var mode agentapi.Mode
	err := json.Unmarshal(text, &mode)
	switch {
	case err == nil && mode == "disable":
		return "", agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"mode" is "disable", which is a mode of Spiderpool's coordinator: write "off"`)
	case err == nil && slices.Contains(agentapi.Modes(), mode):
		return mode, nil
	}
	return "", agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"mode" is %s: write one of %q, or remove it for %q; a mode of macvlan or ipvlan belongs to that plugin`,
		text, agentapi.Modes(), agentapi.ModeAuto)
}

// decodeCIDRs returns the destinations without repetitions.
func decodeCIDRs(text json.RawMessage) ([]netip.Prefix, error) {
	if text == nil {
		return nil, nil
	}
	var items []string
	if err := json.Unmarshal(text, &items); err != nil {
		return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"hostLinkCIDRs" is %s: write a list such as ["10.0.0.0/8", "fd00:8::/32"]`, text)
	}
	if len(items) > mostCIDRs {
		return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"hostLinkCIDRs" has %d entries, more than %d: write fewer, larger CIDRs`, len(items), mostCIDRs)
	}
	var cidrs []netip.Prefix
	for _, item := range items {
		cidr, err := parseDestination(item)
		if err != nil {
			return nil, agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"hostLinkCIDRs" holds %q: %w`, item, err)
		}
		if !slices.Contains(cidrs, cidr) {
			cidrs = append(cidrs, cidr)
		}
	}
	return cidrs, nil
}

// parseDestination reads a destination that a pod may reach through its host link. A link-local IPv4
// address is one: the DNS cache of a node often has 169.254.20.10.
func parseDestination(text string) (netip.Prefix, error) {
	cidr, err := netip.ParsePrefix(text)
	switch addr := cidr.Addr(); {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("it is no CIDR; write an address and a prefix length, such as 10.0.0.0/8")
	case addr.Is4In6():
		return netip.Prefix{}, fmt.Errorf("it is an IPv4 address written as IPv6; write it as IPv4")
	case cidr != cidr.Masked():
		return netip.Prefix{}, fmt.Errorf("it has bits after its prefix length; write %s", cidr.Masked())
	case cidr.Bits() == 0:
		return netip.Prefix{}, fmt.Errorf("it is the default route, which belongs to the pool's gateway; write the destinations behind the node")
	case addr.IsLoopback() || addr.IsMulticast() || addr.Is6() && addr.IsLinkLocalUnicast():
		return netip.Prefix{}, fmt.Errorf("no router forwards loopback, multicast or IPv6 link-local addresses; remove it")
	}
	return cidr, nil
}

// misplaced returns an error if fields about host link and routes are in a place where no plugin
// reads them: beside the type of another plugin, or in "ipam".
func (c *netConf) misplaced() error {
	const remedy = `chain {"type": %q, %s: %s} after the plugin that makes the interface`
	for _, f := range []struct {
		name     string
		beside   json.RawMessage
		in       json.RawMessage
		ofOthers bool
	}{
		{"mode", c.Mode, c.IPAM.Mode, true},
		{"hostLink", c.HostLink, c.IPAM.HostLink, false},
		{"hostLinkCIDRs", c.HostLinkCIDRs, c.IPAM.HostLinkCIDRs, false},
		{"txQueueLen", c.TxQueueLen, c.IPAM.TxQueueLen, false},
	} {
		name := strconv.Quote(f.name)
		if f.in != nil {
			return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `"ipam.%s" is %s, and no plugin reads it there: `+remedy, f.name, f.in, pluginType, name, f.in)
		}
		if f.beside != nil && !f.ofOthers && !c.chained() {
			return agentapi.Errorf(agentapi.CodeInvalidNetworkConfig, `%s is %s beside "type": %q, which does not read it: `+remedy, name, f.beside, c.Type, pluginType, name, f.beside)
		}
	}
	return nil
}
