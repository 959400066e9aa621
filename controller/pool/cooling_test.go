// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

func TestFreedAddressesCoolDown(t *testing.T) {
	first, second := netip.MustParseAddr("10.6.0.9"), netip.MustParseAddr("10.6.0.4")
	c := newCooling()
	c.add("blue", first, noon().Time)
	c.add("blue", second, noon().Add(10*time.Second))

	addrs, next := c.of("blue", 30*time.Second, noon().Add(20*time.Second))
	if !slices.Equal(addrs, []netip.Addr{second, first}) || !next.Equal(noon().Add(30*time.Second)) {
		t.Errorf("cooling %v until %v", addrs, next)
	}
	addrs, _ = c.of("blue", 30*time.Second, noon().Add(30*time.Second))
	if !slices.Equal(addrs, []netip.Addr{second}) {
		t.Errorf("after 30 s: %v", addrs)
	}
	if addrs, next = c.of("green", 30*time.Second, noon().Time); len(addrs) != 0 || !next.IsZero() {
		t.Errorf("another pool: %v until %v", addrs, next)
	}
}
