// SPDX-License-Identifier: Apache-2.0

package servicecidr

import (
	"fmt"
	"net/netip"
	"strings"
)

// Parse reads service CIDRs that the user has named, separated by commas. An error names the wrong
// one. An empty text names none.
func Parse(text string) ([]netip.Prefix, error) {
	if text == "" {
		return nil, nil
	}
	var all []netip.Prefix
	for word := range strings.SplitSeq(text, ",") {
		p, err := parse(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func parse(word string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(word)
	switch {
	case err != nil:
		return p, fmt.Errorf("service CIDR %q: it must be a prefix like 10.96.0.0/16 or fd00:10:96::/112", word)
	case p.Addr().Is4In6():
		return p, fmt.Errorf("service CIDR %q: write the IPv4 prefix as 10.96.0.0/16", word)
	case p != p.Masked():
		return p, fmt.Errorf("service CIDR %q: it has bits after its length; write %s", word, p.Masked())
	case p.Bits() == 0:
		return p, fmt.Errorf("service CIDR %q: it must not contain all addresses", word)
	}
	for _, never := range neverServices() {
		if p.Overlaps(never) {
			return p, fmt.Errorf("service CIDR %q: it overlaps %s: loopback, multicast and link-local addresses are never those of Services", word, never)
		}
	}
	return p, nil
}

// neverServices are the loopback, multicast and link-local addresses (RFC 6890, RFC 5771, RFC 4291).
func neverServices() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range []string{"127.0.0.0/8", "224.0.0.0/4", "169.254.0.0/16", "::1/128", "ff00::/8", "fe80::/10"} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}
