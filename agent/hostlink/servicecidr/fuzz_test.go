// SPDX-License-Identifier: Apache-2.0

package servicecidr

import (
	"net/netip"
	"slices"
	"testing"
)

// FuzzServiceCIDRs: CIDRs that are read are read again from their own text, and contain no address
// that never is a Service's.
func FuzzServiceCIDRs(f *testing.F) {
	for _, text := range []string{"", "10.96.0.0/16", "10.96.0.0/16, fd00:10:96::/112", "0.0.0.0/0", "::ffff:10.96.0.0/112", "127.0.0.0/8", "10.0.0.1/8", "0.0.0.0/1", ","} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse(text)
		if err != nil {
			return
		}
		written := ""
		for i, p := range all {
			if i > 0 {
				written += ","
			}
			written += p.String()
			for _, never := range []string{"127.0.0.0/8", "224.0.0.0/4", "169.254.0.0/16", "::1/128", "ff00::/8", "fe80::/10"} {
				if p.Overlaps(netip.MustParsePrefix(never)) {
					t.Errorf("%q: %s overlaps %s", text, p, never)
				}
			}
		}
		if again, err := Parse(written); err != nil || !slices.Equal(again, all) {
			t.Errorf("%q is read as %v, which is read as %v, %v", text, all, again, err)
		}
	})
}
