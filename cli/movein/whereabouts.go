// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Definition is a NetworkAttachmentDefinition.
type Definition struct {
	Namespace, Name string
	// Config is its network configuration.
	Config string
	// Owner is the program that would undo an edit, or empty.
	Owner string
}

func (d Definition) String() string { return d.Namespace + "/" + d.Name }

// Records are the records of whereabouts for a range (IPPool of whereabouts.cni.cncf.io/v1alpha1).
type Records struct {
	Name, Range string
	// Allocations by offset: the address is the first one of the range plus the offset.
	Allocations map[string]Allocation
}

// Allocation is one record of whereabouts.
type Allocation struct {
	ID     string `json:"id"`
	PodRef string `json:"podref"`
	IfName string `json:"ifname"`
}

// errOtherIPAM: whereabouts does not serve a definition.
var errOtherIPAM = errors.New("its IPAM is not whereabouts")

// served is a range that whereabouts serves.
type served struct {
	prefix netip.Prefix
	// ips and excluded are the addresses that it gives, in the form of a pool.
	ips, excluded []string
	// records is the name of the records of the range.
	records string
}

// network is the configuration of a definition, as far as a move needs it.
type network struct {
	Definition
	ranges  []served
	gateway netip.Addr
	// master is the parent of macvlan or ipvlan, or empty.
	master string
	// networkName is network_name, or empty.
	networkName string
}

// written is a network configuration, or a list of them, as people write it.
type written struct {
	Type    string
	Master  string
	IPAM    *ipamConfig
	Plugins []written
}

type ipamConfig struct {
	Type string
	rangeConfig
	IPRanges      []rangeConfig `json:"ipRanges"`
	Gateway       string        `json:"gateway"`
	Addresses     []any         `json:"addresses"`
	NetworkName   string        `json:"network_name"`
	NodeSliceSize string        `json:"node_slice_size"`
}

type rangeConfig struct {
	Range   string   `json:"range"`
	Start   string   `json:"range_start"`
	End     string   `json:"range_end"`
	Exclude []string `json:"exclude"`
}

// read reads a definition. The error is errOtherIPAM if whereabouts does not serve it.
func read(d Definition) (network, error) {
	n := network{Definition: d}
	var w written
	if !strings.Contains(d.Config, "whereabouts") { // also one without a text: Multus reads a file of that name then
		return n, errOtherIPAM
	}
	if err := json.Unmarshal([]byte(d.Config), &w); err != nil {
		return n, fmt.Errorf("read spec.config: %w", err)
	}
	plugins := w.Plugins
	if len(plugins) == 0 {
		plugins = []written{w}
	}
	plugins = slices.DeleteFunc(slices.Clone(plugins), func(p written) bool { return p.IPAM == nil || p.IPAM.Type != "whereabouts" })
	switch {
	case len(plugins) == 0:
		return n, errOtherIPAM
	case len(plugins) > 1:
		return n, errors.New("whereabouts serves several of its plugins; split it into one definition for each")
	}
	p := plugins[0]
	n.networkName = p.IPAM.NetworkName
	if p.Type == "macvlan" || p.Type == "ipvlan" {
		n.master = p.Master
	}
	switch {
	case p.IPAM.NodeSliceSize != "":
		return n, errors.New("node_slice_size is set; such a network cannot move yet, since whereabouts ignores exclude there")
	case len(p.IPAM.Addresses) > 0:
		return n, errors.New("addresses is set; Fenceline has no static addresses in a definition: remove them, or make a pool for each")
	}
	if p.IPAM.Gateway != "" {
		var err error
		if n.gateway, err = netip.ParseAddr(p.IPAM.Gateway); err != nil {
			return n, fmt.Errorf("gateway: %w", err)
		}
	}
	ranges := p.IPAM.IPRanges
	if p.IPAM.Range != "" {
		ranges = append([]rangeConfig{p.IPAM.rangeConfig}, ranges...)
	}
	if len(ranges) == 0 {
		return n, errors.New("it has no range; a whereabouts.conf on the nodes may have it: write the range into the definition first")
	}
	for _, r := range ranges {
		s, err := r.served(n.networkName)
		if err != nil {
			return n, fmt.Errorf("range %q: %w", r.Range, err)
		}
		n.ranges = append(n.ranges, s)
	}
	return n, nil
}

// served returns the addresses of a range in one of its forms: "10.0.0.0/24", also with host bits, with
// range_start and range_end, or "10.0.0.5-10.0.0.9/24".
func (r rangeConfig) served(network string) (s served, err error) {
	start, end, text := r.Start, r.End, r.Range
	if from, rest, ok := strings.Cut(r.Range, "-"); ok {
		start, text = from, rest
		end, _, _ = strings.Cut(rest, "/")
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return s, err
	}
	s.prefix, s.records = prefix.Masked(), recordsName(prefix.Masked(), network)
	if start != "" || end != "" {
		s.ips = []string{cmp.Or(start, s.prefix.Addr().String()) + "-" + cmp.Or(end, lastOf(s.prefix).String())}
	}
	for _, text := range r.Exclude {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return s, fmt.Errorf("exclude: %w", err)
		}
		s.excluded = append(s.excluded, p.Masked().String())
	}
	return s, nil
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// recordsName returns the name that whereabouts gives the records of a range.
func recordsName(of netip.Prefix, network string) string {
	text := of.String()
	if strings.HasSuffix(text, ":") { // of an address without a length
		text += "0"
	}
	text = strings.NewReplacer(":", "-", "/", "-").Replace(text)
	if network != "" {
		return network + "-" + text
	}
	return text
}

// addressOf returns the address of a record.
func (r Records) addressOf(offset string) (netip.Addr, error) {
	prefix, err := netip.ParsePrefix(r.Range)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("spec.range of the records %s: %w", r.Name, err)
	}
	n, err := strconv.ParseUint(offset, 10, 63)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("spec.allocations of the records %s: offset %q: %w", r.Name, offset, err)
	}
	bytes := prefix.Addr().AsSlice()
	for i := len(bytes) - 1; i >= 0 && n > 0; i-- {
		n += uint64(bytes[i]) // at most 2^63 + 255
		bytes[i] = byte(n)
		n >>= 8
	}
	a, _ := netip.AddrFromSlice(bytes)
	if !prefix.Contains(a) {
		return a, fmt.Errorf("spec.allocations of the records %s: offset %s lies outside %s", r.Name, offset, r.Range)
	}
	return a, nil
}
