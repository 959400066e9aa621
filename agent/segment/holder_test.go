// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

// held is the holding of most tests here: a pod of this node has addr4.
func held(mode v1alpha1.ConflictMode) Holding {
	return Holding{Parent: parent, Network: 42, Token: 1000,
		Announcement: Announcement{Interface: "eth0", MAC: holderMAC, Addr: addr4, Slot: 3, Mode: mode}}
}

// reports is a holder that collects what it is told.
type reports struct {
	holdings []Holding

	mu        sync.Mutex
	conflicts []Conflict
	fences    []bpf.Event
}

func (r *reports) Holdings() []Holding { return r.holdings }

func (r *reports) Met(c Conflict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conflicts = append(r.conflicts, c)
}

func (r *reports) Fenced(f bpf.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fences = append(r.fences, f)
}

// met returns the conflicts reported so far.
func (r *reports) met() []Conflict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.conflicts)
}

// fenced returns the fences reported so far.
func (r *reports) fenced() []bpf.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.fences)
}

// holderAir is an air on which a pod of this node holds addr4.
func holderAir(t *testing.T, h Holding) (*air, *Segment, *reports) {
	t.Helper()
	r := &reports{holdings: []Holding{h}}
	a, seg := newAirOf(t, r)
	check.OK(t, a.kernel.Install(h.key(), bpf.Lease{Token: h.Token, Slot: h.Slot, MAC: h.MAC}))
	return a, seg, r
}

func TestAnnouncementTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg, _ := holderAir(t, held(v1alpha1.ModeEnforce))
		up := make(chan struct{})
		a.portUp = up
		time.AfterFunc(time.Second, func() { close(up) })
		start := time.Now()
		seg.Announce(held("").Announcement)
		equal(t, "the caller waited", time.Since(start), 0)
		time.Sleep(5 * time.Second)
		var at []time.Duration
		for _, f := range a.list(isAnnouncement) {
			at = append(at, f.after-time.Second)
		}
		want := []time.Duration{0, 0, 50e6, 50e6, 200e6, 200e6, 2e9, 2e9} // request and reply
		equal(t, "announcements", len(at), len(want))
		for i := range at {
			equal(t, "after the link came up", at[i], want[i])
		}
	})
}

func TestWhoIsFencedOrDeadStopsAnnouncing(t *testing.T) {
	for name, silence := range map[string]func(*air){
		"fenced": func(a *air) { a.kernel.claim(key(addr4), 1001, otherMAC) },
		"another slot's": func(a *air) {
			_ = a.kernel.Install(key(addr4), bpf.Lease{Token: 2000, Slot: 4, MAC: otherMAC})
		},
		"slot dead": func(a *air) { a.kernel.mu.Lock(); defer a.kernel.mu.Unlock(); a.kernel.deadSlots[3] = true },
	} {
		bubble(t, name, func(t *testing.T) {
			a, seg, _ := holderAir(t, held(v1alpha1.ModeEnforce))
			seg.Announce(held("").Announcement)
			time.Sleep(100 * time.Millisecond)
			silence(a)
			time.Sleep(5 * time.Second)
			equal(t, "announcements", len(a.list(isAnnouncement)), 4)
		})
	}
}

func TestAnnouncementGivesUpOnALinkThatStaysDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg, _ := holderAir(t, held(v1alpha1.ModeEnforce))
		a.portUp = make(chan struct{})
		err := seg.announce(t.Context(), held("").Announcement, announceAt())
		equal(t, "duration", time.Since(a.born), linkUpDeadline)
		check.That(t, err != nil, "no error")
	})
}

func TestDefenceIsAtOnceAndThenEvery10s(t *testing.T) {
	for name, attack := range map[string]func(*air){
		"against a foreign host": func(a *air) { a.kernel.speak(key(addr4), hostMAC, bpf.KindARP) },
		"against an older claim": func(a *air) { a.kernel.claim(key(addr4), 999, hostMAC) },
	} {
		bubble(t, name, func(t *testing.T) {
			a, _, r := holderAir(t, held(v1alpha1.ModeEnforce))
			for range 25 { // one per second
				attack(a)
				time.Sleep(time.Second)
			}
			var at []time.Duration
			for _, f := range a.list(func(s sent) bool { return isClaim(s) && sameMAC(s.dst, hostMAC) }) {
				at = append(at, f.after)
				equal(t, "asks", f.claim.Flags, 0)
			}
			check.That(t, len(at) == 3 && at[0] == 0 && at[1] == 10*time.Second && at[2] == 20*time.Second, "defended at %v", at)
			equal(t, "announcements", len(a.list(isAnnouncement)), 6)
			equal(t, "reports", len(r.met()), 3)
			equal(t, "MAC", r.met()[0].MAC.String(), hostMAC.String())
		})
	}
}

func TestTheDefenceOfOneAddressDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := held(v1alpha1.ModeEnforce)
		a, _, r := holderAir(t, h)
		other := h
		other.Addr = addr6
		r.holdings = append(r.holdings, other)
		check.OK(t, a.kernel.Install(other.key(), bpf.Lease{Token: h.Token, Slot: h.Slot, MAC: h.MAC}))
		for _, addr := range []netip.Addr{addr4, addr6} {
			a.kernel.claim(key(addr), 999, hostMAC)
		}
		synctest.Wait()
		equal(t, "reports", len(r.met()), 2)
	})
}

func TestNoDefence(t *testing.T) {
	proxied := held(v1alpha1.ModeEnforce)
	proxied.Ignore = []net.HardwareAddr{hostMAC}
	for _, tc := range []struct {
		name    string
		h       Holding
		attack  func(*air)
		reports int
	}{
		{"in mode Observe, which reports", held(v1alpha1.ModeObserve),
			func(a *air) { a.kernel.speak(key(addr4), hostMAC, bpf.KindARP) }, 1},
		{"against a probe", held(v1alpha1.ModeEnforce), func(a *air) { a.kernel.speak(key(addr4), hostMAC, bpf.KindARPProbe) }, 0},
		{"against a proxy", proxied, func(a *air) { a.kernel.speak(key(addr4), hostMAC, bpf.KindARP) }, 0},
		{"R10: of a fenced holder, by an event from before the fence", held(v1alpha1.ModeEnforce), func(a *air) {
			a.kernel.claim(key(addr4), 1001, otherMAC)
			a.kernel.report(bpf.Event{Type: bpf.EventHit, Key: key(addr4), MAC: otherMAC, Kind: bpf.KindARP})
		}, 0},
		{"of an address that nobody here holds", held(v1alpha1.ModeEnforce),
			func(a *air) { a.kernel.report(bpf.Event{Type: bpf.EventHit, Key: key(addr6), MAC: hostMAC}) }, 0},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			a, _, r := holderAir(t, tc.h)
			tc.attack(a)
			time.Sleep(30 * time.Millisecond)
			equal(t, "frames", len(a.list(func(sent) bool { return true })), 0)
			equal(t, "reports", len(r.met()), tc.reports)
		})
	}
}

func TestFenceIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, r := holderAir(t, held(v1alpha1.ModeEnforce))
		a.kernel.claim(key(addr4), 1001, otherMAC)
		synctest.Wait()
		f := r.fenced()
		check.Must(t, len(f) == 1 && f[0].Token == 1001 && f[0].Mine == 1000 && f[0].Key == key(addr4), "fences %+v", f)
	})
}

func TestR3ClaimsAreRepeatedAboutOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := holderAir(t, held(v1alpha1.ModeEnforce))
		time.Sleep(10 * time.Minute)
		frames := a.list(isClaim)
		last := time.Duration(0)
		for _, f := range frames {
			gap := f.after - last
			check.That(t, gap <= 58*time.Second && (last <= 0 || gap >= 45*time.Second), "%s between two claims", gap)
			last = f.after
		}
		check.That(t, last >= 8*time.Minute, "the last claim in ten minutes was sent after %s", last)
		a.kernel.claim(key(addr4), 1001, otherMAC)
		time.Sleep(10 * time.Minute)
		equal(t, "claims of a fenced holder", len(a.list(isClaim))-len(frames), 0)
	})
}

func TestSchedule(t *testing.T) {
	s := make(schedule)
	start := time.Now()
	n := 0.0
	jitter := func() float64 { n += 0.618; return n - float64(int(n)) }
	enforced, observed := held(v1alpha1.ModeEnforce), held(v1alpha1.ModeObserve)
	observed.Addr = addr6
	last := time.Duration(-1)
	for at := time.Duration(0); at < time.Hour; at += time.Second {
		for _, h := range s.next(start.Add(at), []Holding{enforced, observed}, jitter) {
			equal(t, "claimed address", h.Addr, addr4)
			check.That(t, last >= 0 || at <= time.Minute, "first claim after %s", at)
			gap := at - last
			check.That(t, last < 0 || gap >= 45*time.Second && 2*gap < HearingWindow, "%s between two claims, so that none may be lost", gap)
			last = at
		}
	}
	check.That(t, last >= 58*time.Minute, "last claim after %s", last)
	s.next(start.Add(time.Hour), nil, jitter)
	equal(t, "entries after the holding ended", len(s), 0)
}

func TestDeafnessMetric(t *testing.T) {
	for _, tc := range []struct {
		name    string
		others  bool
		prepare func(*air)
		want    float64
	}{
		{"hears another node", true, func(a *air) { a.kernel.heard[parent] = a.kernel.Now() }, 0},
		{"hears nobody", true, func(*air) {}, 1},
		{"has nobody to hear", false, func(*air) {}, 0},
		{"has no carrier", false, func(a *air) { a.setCarrier(false) }, 1},
		{"has no observer", false, func(a *air) { delete(a.kernel.observers, parent) }, 1},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			a, seg := newAir(t)
			tc.prepare(a)
			others := func(int) bool { return tc.others }
			equal(t, "deaf", gauge(t, seg.set.Collector(others, others), "fenceline_segment_deaf"), tc.want)
		})
	}
}

func TestAParentThatIsGoneSpoilsNoScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		a.gone = true
		r := prometheus.NewPedanticRegistry()
		others := func(int) bool { return true }
		r.MustRegister(seg.set.Collector(others, others))
		families, err := r.Gather()
		check.That(t, err == nil, "%v", err)
		for _, f := range families {
			check.That(t, f.GetName() != "fenceline_segment_deaf", "it still has %v", f.GetMetric())
		}
	})
}

// gauge scrapes a collector and returns the value of a gauge.
func gauge(t *testing.T, c *Collector, name string) float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	families := check.Value(r.Gather())(t)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
