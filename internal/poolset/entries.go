// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"fmt"
	"net/netip"
	"strings"
)

// Parse reads addresses in the form of IPPool.spec.ips: ranges "a-b", single addresses and CIDRs,
// which may overlap. The error names the first entry that cannot be read.
func Parse(entries []string) (Set, error) {
	spans := make([]span, 0, len(entries))
	for i, entry := range entries {
		sp, err := parseEntry(entry)
		if err != nil {
			return Set{}, fmt.Errorf("entry %d: %w", i, err)
		}
		spans = append(spans, sp)
	}
	return newSet(spans), nil
}

// Of returns the set of some addresses.
func Of(addrs ...netip.Addr) Set {
	spans := make([]span, len(addrs))
	for i, addr := range addrs {
		spans[i] = span{addr, addr}
	}
	return newSet(spans)
}

// parseEntry reads one range, address or CIDR.
func parseEntry(entry string) (span, error) {
	if first, last, isRange := strings.Cut(entry, "-"); isRange {
		return parseRange(first, last)
	}
	if strings.Contains(entry, "/") {
		p, err := parsePrefix(entry)
		if err != nil {
			return span{}, err
		}
		return prefixSpan(p), nil
	}
	a, err := parseAddr(entry)
	if err != nil {
		return span{}, err
	}
	return span{a, a}, nil
}

func parseRange(first, last string) (span, error) {
	from, err := parseAddr(first)
	if err != nil {
		return span{}, err
	}
	to, err := parseAddr(last)
	if err != nil {
		return span{}, err
	}
	if from.BitLen() != to.BitLen() {
		return span{}, fmt.Errorf("range %s-%s mixes IPv4 and IPv6", first, last)
	}
	if to.Less(from) {
		return span{}, fmt.Errorf("range %s-%s ends before it starts", first, last)
	}
	return span{from, to}, nil
}

// parseAddr reads an address. It refuses zones and v4-mapped addresses, because a lease is named after
// its address, so each address must have only one form.
func parseAddr(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	}
	return a, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", text)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("CIDR %s has host bits set, write %s", text, p.Masked())
	}
	return p, nil
}

// prefixSpan returns the first and the last address of a prefix.
func prefixSpan(p netip.Prefix) span {
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < p.Addr().BitLen(); bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	to, _ := netip.AddrFromSlice(last)
	return span{p.Addr(), to}
}
