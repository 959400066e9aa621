// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// bench is a rotation over a pool, with a clock that stands until stepped.
type bench struct {
	*Rotation
	*testing.T
	clock *clocktesting.FakePassiveClock
	view  View
}

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func rotate(t *testing.T, last string, entries ...string) *bench {
	t.Helper()
	b := &bench{T: t, clock: clocktesting.NewFakePassiveClock(midnight)}
	from := netip.Addr{}
	if last != "" {
		from = netip.MustParseAddr(last)
	}
	b.Rotation = NewRotation(from, rand.New(rand.NewPCG(7, 8)), b.clock)
	b.view = View{Set: setOf(t, entries...), Subnet: netip.MustParsePrefix("10.0.0.0/24"), Cooldown: 30 * time.Second, Cooling: true}
	return b
}

func (b *bench) step(d time.Duration) { b.clock.SetTime(b.clock.Now().Add(d)) }

// take picks an address and leases it.
func (b *bench) take() string {
	b.Helper()
	addr, ok := b.Pick(b.view)
	if !ok {
		return "none"
	}
	b.Settle(addr, true)
	return addr.String()
}

func (b *bench) want(addrs ...string) {
	b.Helper()
	for i, want := range addrs {
		got := b.take()
		check.Must(b, got == want, "pick %d: got %s, want %s", i, got, want)
	}
}

func (b *bench) mark(addrs ...string) {
	for _, a := range addrs {
		offset, _ := poolset.Offset(b.view.Subnet, netip.MustParseAddr(a))
		b.view.InUse = b.view.InUse.Mark(offset)
	}
}

func among(addrs ...string) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return slices.Contains(addrs, a.String()) }
}

func TestRotationGoesOnAfterTheLastAddress(t *testing.T) {
	rotate(t, "10.0.0.3", "10.0.0.1-10.0.0.5").want("10.0.0.4", "10.0.0.5", "10.0.0.1", "10.0.0.2")
}

func TestRotationGoesOnAfterAnAddressThatLeftThePool(t *testing.T) {
	rotate(t, "10.0.0.4", "10.0.0.1-10.0.0.2", "10.0.0.7-10.0.0.8").want("10.0.0.7", "10.0.0.8", "10.0.0.1")
	rotate(t, "10.9.9.9", "10.0.0.1-10.0.0.2").want("10.0.0.1", "10.0.0.2")
}

func TestRotationSurvivesARestart(t *testing.T) {
	b := rotate(t, "10.0.0.3", "10.0.0.1-10.0.0.9")
	b.want("10.0.0.4", "10.0.0.5")
	rotate(t, b.Last().String(), "10.0.0.1-10.0.0.9").want("10.0.0.6")
}

func TestRotationIsNotLowestFree(t *testing.T) {
	b := rotate(t, "", "10.0.0.1-10.0.0.200")
	first := b.take()
	b.Freed(netip.MustParseAddr(first))
	b.step(time.Hour)
	second := b.take()
	check.That(t, second != first && second != "10.0.0.1", "first %s, then %s", first, second)
}

func TestAddressesInUseAreSkipped(t *testing.T) {
	b := rotate(t, "10.0.0.1", "10.0.0.1-10.0.0.6")
	b.mark("10.0.0.2", "10.0.0.5")
	b.view.Taken = among("10.0.0.3")
	b.want("10.0.0.4", "10.0.0.6", "10.0.0.1", "none")
}

func TestASightedAddressIsNeverPicked(t *testing.T) {
	b := rotate(t, "10.0.0.1", "10.0.0.2-10.0.0.3")
	b.view.Sighted = among("10.0.0.2")
	b.view.Exact = true
	b.view.Taken = func(netip.Addr) bool { return false }
	if a, b := b.take(), b.take(); a != "10.0.0.3" || b != "10.0.0.3" {
		t.Errorf("got %s and %s", a, b)
	}
}

func TestAFreedAddressCoolsDown(t *testing.T) {
	b := rotate(t, "10.0.0.9", "10.0.0.1-10.0.0.3")
	b.want("10.0.0.1", "10.0.0.2")
	b.Freed(netip.MustParseAddr("10.0.0.1"))
	b.Freed(netip.MustParseAddr("10.0.0.2"))
	b.step(29 * time.Second)
	b.want("10.0.0.3")
	b.step(time.Second)
	b.want("10.0.0.1")
}

func TestCoolingIsRelaxedWhenNothingElseIsFree(t *testing.T) {
	b := rotate(t, "10.0.0.9", "10.0.0.1-10.0.0.4")
	b.want("10.0.0.1", "10.0.0.2", "10.0.0.3")
	for _, a := range []string{"10.0.0.2", "10.0.0.3", "10.0.0.1"} {
		b.Freed(netip.MustParseAddr(a))
		b.step(time.Second)
	}
	// The controller's bitmap marks what cools down as well.
	b.mark("10.0.0.1", "10.0.0.2", "10.0.0.3")
	b.want("10.0.0.4", "10.0.0.2", "10.0.0.3", "10.0.0.1", "none")
}

func TestTheAddressJustFreedComesLastHoweverShortTheCooldown(t *testing.T) {
	b := rotate(t, "10.0.0.9", "10.0.0.1-10.0.0.3")
	b.view.Cooldown = 0
	b.want("10.0.0.1", "10.0.0.2", "10.0.0.3")
	b.Freed(netip.MustParseAddr("10.0.0.3"))
	b.Freed(netip.MustParseAddr("10.0.0.1"))
	b.step(time.Hour)
	b.mark("10.0.0.2")
	b.want("10.0.0.3", "10.0.0.1", "none")
}

func TestALeaseJustMetIsRememberedUntilTheBitmapShowsIt(t *testing.T) {
	b := rotate(t, "10.0.0.9", "10.0.0.1-10.0.0.2")
	b.want("10.0.0.1", "10.0.0.2", "none")
	b.step(remember)
	b.want("10.0.0.1")
}

func TestExactKnowledgeReplacesTheHints(t *testing.T) {
	b := rotate(t, "10.0.0.9", "10.0.0.1-10.0.0.4")
	b.mark("10.0.0.3", "10.0.0.4")
	b.want("10.0.0.1", "10.0.0.2", "none")
	b.view.Exact, b.view.Taken = true, among("10.0.0.1", "10.0.0.4")
	got := []string{b.take(), b.take()}
	slices.Sort(got)
	check.List(t, got, []string{"10.0.0.2", "10.0.0.3"}, "got")
}

func TestAnEmptyPoolHasNothingToPick(t *testing.T) {
	rotate(t, "").want("none")
}

func TestConcurrentPicksDiffer(t *testing.T) {
	b := rotate(t, "", "10.0.0.1-10.0.0.200")
	b.view.Share = Share{Index: 1, Count: 4}
	var mu sync.Mutex
	seen := map[netip.Addr]bool{}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 20 {
				addr, ok := b.Pick(b.view)
				mu.Lock()
				check.That(t, ok && !seen[addr], "%s picked twice, or nothing: %v", addr, ok)
				seen[addr] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestTheOwnShareComesFirst(t *testing.T) {
	b := rotate(t, "", "10.0.0.0/24")
	b.view.Share = Share{Index: 2, Count: 5}
	share := 0
	for i := range b.view.Set.Len() {
		if b.view.Share.Has(b.view.Set.At(i)) {
			share++
		}
	}
	for n := range int(b.view.Set.Len()) {
		addr := netip.MustParseAddr(b.take())
		own := b.view.Share.Has(addr)
		check.Must(t, own == (n < share), "pick %d of a share of %d: %s, own share: %v", n, share, addr, own)
	}
}

func TestSharesDivideAPoolEvenly(t *testing.T) {
	for _, entry := range []string{"10.0.0.0/21", "fd00::/117"} {
		set := setOf(t, entry)
		counts := make([]int, 10)
		for i := range set.Len() {
			owners := 0
			for index := range counts {
				if (Share{index, len(counts)}).Has(set.At(i)) {
					counts[index]++
					owners++
				}
			}
			check.Must(t, owners == 1, "%s belongs to %d shares", set.At(i), owners)
		}
		for index, n := range counts {
			check.That(t, n >= 150 && n <= 260, "%s: share %d has %d of %d addresses", entry, index, n, set.Len())
		}
	}
}

func TestSharesAreTheSameInEveryRelease(t *testing.T) {
	// Agents of two releases share pools during an upgrade.
	for addr, index := range map[string]int{"10.0.0.1": 4, "10.0.0.2": 0, "fd00::1": 3, "fd00::2": 6} {
		for i := range 10 {
			check.Equal(t, (Share{i, 10}).Has(netip.MustParseAddr(addr)), i == index, "%s in share %d:", addr, i)
		}
	}
}

func TestWithoutAnIndexEverythingIsTheShare(t *testing.T) {
	for _, s := range []Share{{}, {0, 1}} {
		check.That(t, s.Has(netip.MustParseAddr("10.0.0.1")), "%v", s)
	}
}

func TestALargeIPv6PoolIsRotatedToo(t *testing.T) {
	b := rotate(t, "fd00::ffff:ffff:ffff:fffd", "fd00::/64")
	b.view.Subnet = netip.MustParsePrefix("fd00::/64")
	// The very last address of 2^64 has no position that fits into 64 bits.
	b.want("fd00::ffff:ffff:ffff:fffe", "fd00::")
	b.view.Share = Share{Index: 3, Count: 1000}
	seen := map[string]bool{}
	for range 100 {
		a := b.take()
		check.Must(t, !seen[a] && b.view.Share.Has(netip.MustParseAddr(a)), "%s: seen %v", a, seen[a])
		seen[a] = true
	}
}

// TestPicksAreSoundAndComplete is the property: whatever the pool and the hints, no pick is known to be
// taken, and every address that nothing is known against is picked before Pick gives up.
func TestPicksAreSoundAndComplete(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		b := rotate(t, "", "10.0.0.0-10.0.0."+netip.AddrFrom4([4]byte{0, 0, 0, byte(r.IntN(250))}).String()[6:])
		b.view.Share = Share{r.IntN(3), r.IntN(3) + 1}
		b.view.Exact = r.IntN(3) == 0
		blocked := map[netip.Addr]bool{}
		var free int
		for i := range b.view.Set.Len() {
			addr := b.view.Set.At(i)
			switch kind := r.IntN(5); {
			case kind == 0 && !b.view.Exact:
				b.mark(addr.String())
				blocked[addr] = true
			case kind == 1:
				blocked[addr] = true
			case kind == 2:
				b.Freed(addr)
				free++
			default:
				free++
			}
		}
		b.view.Taken = func(a netip.Addr) bool { return blocked[a] }
		for n := range free {
			addr, ok := b.Pick(b.view)
			check.Must(t, ok && !blocked[addr], "pick %d of %d: %s, %v", n, free, addr, ok)
			blocked[addr] = true
			b.Settle(addr, true)
		}
		addr, ok := b.Pick(b.view)
		check.Must(t, !ok, "%s was picked from a full pool", addr)
	}
}
