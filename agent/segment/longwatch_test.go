// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

// quiet watches addr4 on a fresh air.
func quiet(t *testing.T, p ProbeParams) (*air, *Segment, *LongWatch) {
	t.Helper()
	a, seg := newAir(t)
	w := check.Value(seg.WatchLong(addr4, p))(t)
	t.Cleanup(func() { check.Is(t, w.End(), nil, "got") })
	return a, seg, w
}

func (w *LongWatch) prove(t *testing.T, want Doubt) Answer {
	t.Helper()
	doubt, answer, err := w.Prove(t.Context(), TimingFor(w.addr))
	check.OK(t, err)
	equal(t, "doubt after the proof", doubt, want)
	return answer
}

func (w *LongWatch) doubt(t *testing.T, want Doubt) Answer {
	t.Helper()
	doubt, answer, err := w.Doubt()
	check.OK(t, err)
	equal(t, "doubt", doubt, want)
	return answer
}

func TestProbesAtLeisureKeepTheTimesOfTheStandards(t *testing.T) {
	for _, c := range []struct {
		name   string
		addr   netip.Addr
		jitter float64
		sent   []time.Duration
		took   time.Duration
	}{
		{"IPv4 at the quickest: PROBE_MIN between probes, then ANNOUNCE_WAIT", addr4, 0, []time.Duration{0, 1e9, 2e9}, 4e9},
		{"IPv4 at the slowest: PROBE_WAIT, then PROBE_MAX between probes", addr4, 1, []time.Duration{1e9, 3e9, 5e9}, 7e9},
		{"IPv6 at the quickest: RetransTimer between solicitations and after the last", addr6, 0, []time.Duration{0, 1e9, 2e9}, 3e9},
		{"IPv6 at the slowest: MAX_RTR_SOLICITATION_DELAY first", addr6, 1, []time.Duration{1e9, 2e9, 3e9}, 4e9},
	} {
		bubble(t, c.name, func(t *testing.T) {
			a, seg := newAir(t)
			a.setJitter(c.jitter)
			w := check.Value(seg.WatchLong(c.addr, ProbeParams{}))(t)
			start := time.Now()
			w.prove(t, DoubtNone)
			equal(t, "duration", time.Since(start), c.took)
			probes := a.list(isProbe)
			equal(t, "probes", len(probes), len(c.sent))
			for i, p := range probes {
				equal(t, "time of probe", p.after, c.sent[i])
				equal(t, "marked for reflection", p.marked, true)
			}
			_, watched, _ := a.kernel.Lease(key(c.addr))
			equal(t, "watched on", watched, true)
			check.OK(t, w.End())
			_, watched, _ = a.kernel.Lease(key(c.addr))
			equal(t, "watched after the end", watched, false)
		})
	}
}

// Nobody hears probes that go into a dead link, whoever may be behind it.
func TestNothingIsProvenWithoutCarrierOrObserver(t *testing.T) {
	for rule, c := range map[string]struct {
		off, on func(*air)
		want    Doubt
	}{
		"the carrier comes back while it is proven": {
			func(a *air) { a.setCarrier(false) }, func(a *air) { a.setCarrier(true) }, DoubtCarrier},
		"there is no carrier": {func(a *air) { a.setCarrier(false) }, func(*air) {}, DoubtCarrier},
		"there is no observer": {
			func(a *air) { _ = a.kernel.detachObserver(parent) }, func(*air) {}, DoubtObserver},
	} {
		bubble(t, rule, func(t *testing.T) {
			a, _, w := quiet(t, ProbeParams{})
			c.off(a)
			time.AfterFunc(time.Second, func() { c.on(a) })
			w.prove(t, c.want)
			equal(t, "probes", len(a.list(isProbe)), 0)
			synctest.Wait()
		})
	}
}

func TestASpeakerDuringTheProofEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, w := quiet(t, ProbeParams{})
		answering(hostMAC, bpf.KindARP)(a)
		start := time.Now()
		answer := w.prove(t, DoubtSpoken)
		equal(t, "duration", time.Since(start), 0)
		equal(t, "MAC", answer.MAC.String(), hostMAC.String())
		equal(t, "source", answer.Source, SourceProbe)
	})
}

func TestASpeakerAfterAProofThatFailedDidNotAnswerAProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, w := quiet(t, ProbeParams{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := w.Prove(ctx, TimingFor(w.addr))
		check.Is(t, err, context.DeadlineExceeded, "got")
		a.kernel.speak(key(addr4), hostMAC, bpf.KindARP)
		equal(t, "source", w.doubt(t, DoubtSpoken).Source, SourceObserver)
	})
}

// The host hears the probes that follow, and answers them or gives way.
func TestASolicitationAfterTheLastProbeIsNoProof(t *testing.T) {
	for at, want := range map[time.Duration]Doubt{1500 * time.Millisecond: DoubtNone, 2500 * time.Millisecond: DoubtAsked} {
		synctest.Test(t, func(t *testing.T) {
			a, seg := newAir(t)
			a.setJitter(0)
			w := check.Value(seg.WatchLong(addr6, ProbeParams{}))(t)
			time.AfterFunc(at, func() { a.kernel.speak(key(addr6), hostMAC, bpf.KindDAD) })
			w.prove(t, want)
			check.OK(t, w.End())
		})
	}
}

func TestWhatVoidsAProof(t *testing.T) {
	speak := func(kind bpf.Kind, times int) func(*air, *Segment) {
		return func(a *air, _ *Segment) {
			for range times {
				a.kernel.speak(key(addr4), hostMAC, kind)
				time.Sleep(time.Millisecond)
			}
		}
	}
	for rule, c := range map[string]struct {
		happens func(*air, *Segment)
		want    Doubt
	}{
		"nothing":                                   {func(*air, *Segment) {}, DoubtNone},
		"somebody who speaks for the address":       {speak(bpf.KindARP, 1), DoubtSpoken},
		"somebody who speaks, with the events lost": {func(a *air, s *Segment) { a.kernel.loseEvents = true; speak(bpf.KindNA, 1)(a, s) }, DoubtSpoken},
		"somebody who asks for it twice":            {speak(bpf.KindARPProbe, 2), DoubtSpoken},
		"not a switch that asks once":               {speak(bpf.KindARPProbe, 1), DoubtNone},
		"a host that solicits once":                 {speak(bpf.KindDAD, 1), DoubtAsked},
		"not a switch that asks now and then": {func(a *air, s *Segment) {
			for range 5 {
				speak(bpf.KindARPProbe, 1)(a, s)
				time.Sleep(time.Minute)
			}
		}, DoubtNone},
		"not a proxy that the pool ignores":                      {func(a *air, _ *Segment) { a.kernel.speak(key(addr4), holderMAC, bpf.KindARP) }, DoubtNone},
		"a parent without carrier":                               {func(a *air, _ *Segment) { a.setCarrier(false) }, DoubtCarrier},
		"a carrier that was lost and came back, however quickly": {func(a *air, _ *Segment) { a.setCarrier(false); a.setCarrier(true) }, DoubtCarrier},
		"an observer that was taken off":                         {func(a *air, _ *Segment) { _ = a.kernel.detachObserver(parent) }, DoubtObserver},
		"an observer that was put back by the next ADD": {func(a *air, s *Segment) {
			_ = a.kernel.detachObserver(parent)
			_, _ = s.set.Open(parent)
		}, DoubtObserver},
		"a watch that is gone from the kernel": {func(a *air, _ *Segment) { _ = a.kernel.RemoveWatch(key(addr4)) }, DoubtObserver},
		"a holder on this node": {func(a *air, _ *Segment) {
			_ = a.kernel.Install(key(addr4), bpf.Lease{Slot: 3, Token: 1, MAC: holderMAC})
		}, DoubtHeld},
	} {
		bubble(t, rule, func(t *testing.T) {
			a, seg, w := quiet(t, ProbeParams{Ignore: []net.HardwareAddr{holderMAC}})
			w.doubt(t, DoubtUnproven)
			w.prove(t, DoubtNone)
			c.happens(a, seg)
			answer := w.doubt(t, c.want)
			if c.want == DoubtSpoken {
				equal(t, "MAC", answer.MAC.String(), hostMAC.String())
				equal(t, "source", answer.Source, SourceObserver)
			}
			if c.want == DoubtCarrier || c.want == DoubtObserver {
				a.setCarrier(true)
				_, _ = seg.set.Open(parent)
				_ = a.kernel.Install(key(addr4), bpf.Lease{})
				w.doubt(t, DoubtUnproven)
				w.prove(t, DoubtNone)
				w.doubt(t, DoubtNone)
			}
		})
	}
}

func TestWaitTellsOfADoubtAtOnceOrSoon(t *testing.T) {
	for name, c := range map[string]struct {
		lose   bool
		within time.Duration
	}{"by its event": {false, 0}, "by the state, the event being lost": {true, lookInterval}} {
		bubble(t, name, func(t *testing.T) {
			a, _, w := quiet(t, ProbeParams{})
			w.prove(t, DoubtNone)
			a.kernel.loseEvents = c.lose
			time.AfterFunc(time.Hour, func() { a.kernel.speak(key(addr4), hostMAC, bpf.KindARP) })
			start := time.Now()
			doubt, _, err := w.Wait(t.Context())
			check.OK(t, err)
			equal(t, "doubt", doubt, DoubtSpoken)
			late := time.Since(start) - time.Hour
			check.That(t, late >= 0 && late <= c.within, "told %s after it was said", late)
		})
	}
}

func TestModeOffProvesNothingAndDoubtsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, w := quiet(t, ProbeParams{Mode: v1alpha1.ModeOff})
		w.doubt(t, DoubtUnproven)
		w.prove(t, DoubtNone)
		a.setCarrier(false)
		w.doubt(t, DoubtNone)
		equal(t, "frames", len(a.list(isProbe)), 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, _, err := w.Wait(ctx)
		check.That(t, errors.Is(err, context.DeadlineExceeded), "got %v", err)
	})
}

// An agent that crashed leaves its watches in the kernel.
func TestTheWatchOfAnAgentBeforeIsEndedWithOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		check.OK(t, a.kernel.Install(key(addr4), bpf.Lease{}))
		w := check.Value(seg.WatchLong(addr4, ProbeParams{}))(t)
		check.OK(t, w.End())
		_, watched, _ := a.kernel.Lease(key(addr4))
		equal(t, "watched after the end", watched, false)
	})
}

func TestALeaseThatWasInstalledMeanwhileOutlivesTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, w := quiet(t, ProbeParams{})
		check.OK(t, a.kernel.Install(key(addr4), bpf.Lease{Slot: 3, Token: 1, MAC: holderMAC}))
		check.OK(t, w.End())
		_, held, _ := a.kernel.Lease(key(addr4))
		equal(t, "held", held, true)
	})
}
