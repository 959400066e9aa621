// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

var params50 = ProbeParams{Rounds: 3, Interval: 50 * time.Millisecond}

// probeAir probes addr4 on an air that prepare has furnished, and returns what
// came of it and how long it took.
func probeAir(t *testing.T, p ProbeParams, prepare func(*air)) (a *air, answer Answer, took time.Duration) {
	t.Helper()
	a, seg := newAir(t)
	prepare(a)
	start := time.Now()
	answer = check.Value(seg.Probe(t.Context(), addr4, p))(t)
	return a, answer, time.Since(start)
}

// answering makes host answer every probe by kind.
func answering(host net.HardwareAddr, kind bpf.Kind) func(*air) {
	return func(a *air) {
		a.onProbe = func(addr netip.Addr, dst net.HardwareAddr) {
			if broadcast(dst) || sameMAC(dst, host) {
				a.kernel.speak(key(addr), host, kind)
			}
		}
	}
}

func TestFreeAddressIsSilentAfterThreeRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, answer, took := probeAir(t, params50, func(*air) {})
		equal(t, "conflict", answer.Conflict, false)
		equal(t, "duration", took, 150*time.Millisecond)
		probes := a.list(isProbe)
		equal(t, "probes", len(probes), 3)
		for i, p := range probes {
			equal(t, "time of probe", p.after, time.Duration(i)*50*time.Millisecond)
			equal(t, "marked for reflection", p.marked, true)
		}
		_, watched, _ := a.kernel.Lease(key(addr4))
		check.That(t, !watched, "the address is still watched")
	})
}

// The MAC of a bridge without one of its own changes with its ports, and answers go to the old one.
func TestSilenceProvesNothingIfTheMACOfTheParentChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		probes := 0
		a.onProbe = func(netip.Addr, net.HardwareAddr) {
			if probes++; probes == 2 {
				a.setMAC(hostMAC)
			}
		}
		_, err := seg.Probe(t.Context(), addr4, params50)
		check.That(t, err != nil && strings.Contains(err.Error(), "the MAC of the parent changed"), "got %v", err)
		equal(t, "probes", probes, 2)
	})
}

func TestAnswerEndsTheProbeAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		kind bpf.Kind
		lose bool
		took time.Duration
	}{
		{"ARP", bpf.KindARP, false, 0}, {"NA", bpf.KindNA, false, 0}, {"IP", bpf.KindIP, false, 0},
		{"a lost event hides none", bpf.KindARP, true, 50 * time.Millisecond},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			_, answer, took := probeAir(t, params50, func(a *air) {
				a.kernel.loseEvents = tc.lose
				answering(hostMAC, tc.kind)(a)
			})
			equal(t, "conflict", answer.Conflict, true)
			equal(t, "MAC", answer.MAC.String(), hostMAC.String())
			equal(t, "kind", answer.Kind, tc.kind)
			equal(t, "source", answer.Source, SourceProbe)
			equal(t, "duration", took, tc.took)
		})
	}
}

func TestForeignProbeIsAConflictWhenSeenTwice(t *testing.T) {
	for _, tc := range []struct {
		name  string
		lose  bool
		times int
		want  bool
	}{{"once", false, 1, false}, {"twice", false, 2, true}, {"twice, events lost", true, 2, true}} {
		bubble(t, tc.name, func(t *testing.T) {
			_, answer, _ := probeAir(t, params50, func(a *air) {
				a.kernel.loseEvents = tc.lose
				left := tc.times
				a.onProbe = func(addr netip.Addr, _ net.HardwareAddr) {
					if left--; left >= 0 {
						a.kernel.speak(key(addr), hostMAC, bpf.KindARPProbe)
					}
				}
			})
			equal(t, "conflict", answer.Conflict, tc.want)
		})
	}
}

func TestPredecessor(t *testing.T) {
	for _, tc := range []struct {
		name    string
		onProbe func(a *air) func(netip.Addr, net.HardwareAddr)
		want    bool
	}{
		{"a switch that answers in its place is no conflict", func(a *air) func(netip.Addr, net.HardwareAddr) {
			return func(addr netip.Addr, dst net.HardwareAddr) {
				if broadcast(dst) {
					a.kernel.speak(key(addr), holderMAC, bpf.KindARP)
				}
			}
		}, false},
		{"its frames of the first 100 ms are no conflict", func(a *air) func(netip.Addr, net.HardwareAddr) {
			return func(addr netip.Addr, dst net.HardwareAddr) {
				if time.Since(a.born) < 100*time.Millisecond {
					a.kernel.speak(key(addr), holderMAC, bpf.KindARP)
				}
			}
		}, false},
		{"that answers for itself is a conflict", func(a *air) func(netip.Addr, net.HardwareAddr) {
			return func(addr netip.Addr, _ net.HardwareAddr) { a.kernel.speak(key(addr), holderMAC, bpf.KindARP) }
		}, true},
		{"that hears only unicast, behind storm control, is a conflict", func(a *air) func(netip.Addr, net.HardwareAddr) {
			return func(addr netip.Addr, dst net.HardwareAddr) {
				if sameMAC(dst, holderMAC) {
					a.kernel.speak(key(addr), holderMAC, bpf.KindARP)
				}
			}
		}, true},
		{"does not hide a stranger", func(a *air) func(netip.Addr, net.HardwareAddr) {
			return func(addr netip.Addr, _ net.HardwareAddr) {
				a.kernel.speak(key(addr), holderMAC, bpf.KindARP)
				a.kernel.speak(key(addr), hostMAC, bpf.KindARP)
			}
		}, true},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			p := params50
			p.PreviousMAC, p.Settle = holderMAC, SettleAfterClaim
			_, answer, _ := probeAir(t, p, func(a *air) { a.onProbe = tc.onProbe(a) })
			equal(t, "conflict", answer.Conflict, tc.want)
		})
	}
}

func TestLastTwoRoundsAreSentAfterLateFramesAreThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := params50
		p.PreviousMAC, p.Settle = holderMAC, SettleAfterClaim
		a, _, took := probeAir(t, p, func(*air) {})
		probes := a.list(func(s sent) bool { return isProbe(s) && broadcast(s.dst) })
		equal(t, "probes", len(probes), 3)
		equal(t, "first", probes[0].after, 0)
		equal(t, "second", probes[1].after, 100*time.Millisecond)
		equal(t, "third", probes[2].after, 150*time.Millisecond)
		equal(t, "duration", took, 200*time.Millisecond)
	})
}

func TestModeOffProbesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := params50
		p.Mode = v1alpha1.ModeOff
		a, answer, _ := probeAir(t, p, answering(hostMAC, bpf.KindARP))
		equal(t, "conflict", answer.Conflict, false)
		equal(t, "frames", len(a.list(func(sent) bool { return true })), 0)
	})
}

func TestProbeOfAnInstalledLeaseLeavesItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		own := bpf.Lease{Token: 5, Slot: 3, MAC: holderMAC}
		check.OK(t, a.kernel.Install(key(addr4), own))
		answering(holderMAC, bpf.KindARP)(a)
		answer := check.Value(seg.Probe(t.Context(), addr4, params50))(t)
		equal(t, "the holder's own frames are a conflict", answer.Conflict, false)
		l, ok, _ := a.kernel.Lease(key(addr4))
		equal(t, "lease is installed", ok, true)
		equal(t, "slot", l.Slot, 3)
	})
}

func TestWatchThatBecameALeaseIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, answer, _ := probeAir(t, params50, func(a *air) {
			a.onProbe = func(addr netip.Addr, _ net.HardwareAddr) {
				check.Is(t, a.kernel.Install(key(addr), bpf.Lease{Token: 5, Slot: 3, MAC: holderMAC}), nil, "got")
			}
		})
		equal(t, "conflict", answer.Conflict, false)
		_, ok, _ := a.kernel.Lease(key(addr4))
		check.That(t, ok, "the lease was removed with the watch")
	})
}

func TestConcurrentProbesOfOneAddressShareItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		var probes sync.WaitGroup
		for i := range 4 {
			probes.Go(func() {
				time.Sleep(time.Duration(i) * 30 * time.Millisecond)
				_, err := seg.Probe(t.Context(), addr4, params50)
				check.That(t, err == nil, "%v", err)
				_, watched, _ := a.kernel.Lease(key(addr4))
				equal(t, "watched while others probe", watched, i < 3)
			})
		}
		probes.Wait()
	})
}

func TestAThousandConcurrentProbesKeepThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		var probes sync.WaitGroup
		addr := netip.MustParseAddr("198.18.0.1")
		for range 1000 {
			addr = addr.Next()
			target := addr
			probes.Go(func() {
				_, err := seg.Probe(t.Context(), target, params50)
				check.That(t, err == nil, "%v", err)
			})
		}
		probes.Wait()
		frames := a.list(isProbe)
		equal(t, "probes", len(frames), 3000)
		for i := FramesPerMillisecond; i < len(frames); i++ {
			d := frames[i].after - frames[i-FramesPerMillisecond].after
			check.Must(t, d >= time.Millisecond, "%d frames in %s", FramesPerMillisecond+1, d)
		}
	})
}
