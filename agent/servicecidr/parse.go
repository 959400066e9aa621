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
	switch a := p.Addr(); {
	case err != nil:
		return p, fmt.Errorf("service CIDR %q: it must be a prefix like 10.96.0.0/16 or fd00:10:96::/112", word)
	case a.Is4In6():
		return p, fmt.Errorf("service CIDR %q: write the IPv4 prefix as 10.96.0.0/16", word)
	case p != p.Masked():
		return p, fmt.Errorf("service CIDR %q: it has bits after its length; write %s", word, p.Masked())
	case p.Bits() == 0:
		return p, fmt.Errorf("service CIDR %q: it must not contain all addresses", word)
	case a.IsLoopback(), a.IsMulticast(), a.IsLinkLocalUnicast():
		return p, fmt.Errorf("service CIDR %q: loopback, multicast and link-local addresses are never those of Services", word)
	}
	return p, nil
}
