// SPDX-License-Identifier: Apache-2.0

package movein

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/internal/poolset"
)

// Records are the records of whereabouts for a range (IPPool of whereabouts.cni.cncf.io/v1alpha1).
type Records struct {
	Name, Range string
	// Allocations by offset: the address is the first one of the range plus the offset.
	Allocations map[string]Allocation
	Namespace   string
}

// Allocation is one record of whereabouts.
type Allocation struct {
	ID     string `json:"id"`
	PodRef string `json:"podref"`
	IfName string `json:"ifname"`
}

// ipamConfig is the ipam of whereabouts.
type ipamConfig struct {
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

// whereabouts reads what a definition of a name has for it.
func (n *network) whereabouts(text json.RawMessage, name string, f Facts) error {
	var c ipamConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("read ipam of spec.config: %w", err)
	}
	n.networkName = c.NetworkName
	if len(c.Addresses) > 0 {
		return errors.New("addresses is set; Fenceline has no static addresses in a definition: remove them, or make a pool for each")
	}
	var gateway netip.Addr
	if c.Gateway != "" {
		var err error
		if gateway, err = netip.ParseAddr(c.Gateway); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
	}
	ranges := c.IPRanges
	if c.Range != "" {
		ranges = append([]rangeConfig{c.rangeConfig}, ranges...)
	}
	if len(ranges) == 0 {
		return errors.New("it has no range; a whereabouts.conf on the nodes may have it: write the range into the definition first")
	}
	inNone := gateway.IsValid()
	for _, r := range ranges {
		s, err := r.served(n.networkName)
		if err != nil {
			return fmt.Errorf("range %q: %w", r.Range, err)
		}
		if gateway.IsValid() && s.prefix.Contains(gateway) {
			s.gateway, inNone = gateway, false
		}
		n.ranges = append(n.ranges, s)
	}
	if c.NodeSliceSize != "" {
		if err := n.slice(c, name, f); err != nil {
			return err
		}
	}
	if inNone {
		n.notes = append(n.notes, fmt.Sprintf("gateway %s lies in no range, so no pool has it", gateway))
	}
	return nil
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
	if s.set, err = poolset.Parse([]string{s.prefix.String()}); err != nil {
		return s, err
	}
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
	given, err := poolset.Parse(s.ips)
	if err != nil {
		return s, err
	}
	if len(s.ips) == 0 {
		given = s.set
	}
	never, err := poolset.Parse(s.excluded)
	s.gives = given.Minus(never)
	return s, err
}

// excludeIn has an ipam exclude addresses, or its whole ranges.
func excludeIn(ipam map[string]any, all bool, taken []netip.Addr) error {
	for _, r := range rangesIn(ipam) {
		prefix, err := rangeOf(r)
		if err != nil {
			return err
		}
		exclude, _ := r["exclude"].([]any)
		if all {
			delete(ipam, "node_slice_size") // the key makes whereabouts ignore exclude
			exclude = append(exclude, prefix.String())
		}
		for _, a := range taken {
			if prefix.Contains(a) {
				exclude = append(exclude, netip.PrefixFrom(a, a.BitLen()).String())
			}
		}
		if len(exclude) > 0 {
			r["exclude"] = exclude
		}
	}
	return nil
}

// stripExclude has an ipam exclude nothing.
func stripExclude(ipam map[string]any) {
	for _, r := range rangesIn(ipam) {
		delete(r, "exclude")
	}
}

// rangesIn returns the objects of an ipam that have a range.
func rangesIn(ipam map[string]any) (ranges []map[string]any) {
	more, _ := ipam["ipRanges"].([]any)
	for _, each := range append([]any{ipam}, more...) {
		if of, _ := each.(map[string]any); of["range"] != nil && of["range"] != "" {
			ranges = append(ranges, of)
		}
	}
	return ranges
}

// rangeOf returns the whole range of such an object, whatever part of it whereabouts gives.
func rangeOf(of map[string]any) (netip.Prefix, error) {
	text, _ := of["range"].(string)
	if _, after, ok := strings.Cut(text, "-"); ok {
		text = after
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, fmt.Errorf("range %q: %w", text, err)
	}
	return prefix.Masked(), nil
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
