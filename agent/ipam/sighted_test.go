// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"
	"testing"
)

// A sighting is a system call, and a full pool has thousands of addresses.
func TestTheKernelIsAskedOnlyAboutWhatNothingElseSpeaksAgainst(t *testing.T) {
	b := rotate(t, "10.0.0.1", "10.0.0.2-10.0.0.9")
	b.mark("10.0.0.2", "10.0.0.3")
	b.view.Taken = among("10.0.0.4")
	var asked []string
	b.view.Sighted = func(addr netip.Addr) bool {
		asked = append(asked, addr.String())
		return addr == netip.MustParseAddr("10.0.0.5")
	}
	b.want("10.0.0.6")
	if want := []string{"10.0.0.5", "10.0.0.6"}; !slices.Equal(asked, want) {
		t.Errorf("asked about %v, want %v", asked, want)
	}
}
