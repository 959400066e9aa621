// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

func verification() Verification {
	return Verification{Claim: ownClaim, Probe: params50, OthersShare: true}
}

// verifyAir verifies v on an air that prepare has furnished, unless it is nil.
func verifyAir(t *testing.T, v Verification, prepare func(*air)) (a *air, verdict Verdict, e Evidence, took time.Duration) {
	t.Helper()
	a, seg := newAir(t)
	a.kernel.heard[parent] = a.kernel.Now() - time.Minute
	a.kernel.speakers = []netip.Addr{v.Claim.Addr, canary4}
	if prepare != nil {
		prepare(a)
	}
	start := time.Now()
	verdict, e, err := seg.Verify(t.Context(), v)
	check.OK(t, err)
	_, watched, _ := a.kernel.Lease(key(addr4))
	check.That(t, !watched, "the address is still watched")
	return a, verdict, e, time.Since(start)
}

// guardedZombie is the previous holder on another node: its kernel acknowledges
// the first claim, and until then it answers.
func guardedZombie(a *air) {
	fenced := false
	a.onClaim = func(f claim.Frame, _ net.HardwareAddr) {
		fenced = true
		a.kernel.ack(key(f.Addr), f.Network, f.Token, otherMAC)
	}
	a.onProbe = func(addr netip.Addr, _ net.HardwareAddr) {
		if !fenced {
			a.kernel.speak(key(addr), holderMAC, bpf.KindARP)
		}
	}
}

func TestVerifyGuardedZombieIsFencedByItsAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, verdict, e, took := verifyAir(t, verification(), guardedZombie)
		equal(t, "verdict", verdict, Fenced)
		equal(t, "acked", e.Acked, true)
		equal(t, "by", e.AckMAC.String(), otherMAC.String())
		equal(t, "claims, broadcast and unicast, ended by the ack", len(a.list(isClaim)), 2)
		equal(t, "the one probe round for strangers", took, 50*time.Millisecond)
	})
}

// Its agent needs a moment to switch its VF off; an emulated card takes 175 ms.
func TestVerifyWaitsForAHolderWithoutAGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := verification()
		v.Unguarded = true
		begun := time.Now()
		off := func() bool { return time.Since(begun) >= 900*time.Millisecond }
		_, verdict, _, _ := verifyAir(t, v, func(a *air) {
			a.onClaim = func(f claim.Frame, _ net.HardwareAddr) {
				if off() {
					a.kernel.ack(key(f.Addr), f.Network, f.Token, otherMAC)
				}
			}
			a.onProbe = func(addr netip.Addr, _ net.HardwareAddr) {
				if !off() {
					a.kernel.speak(key(addr), holderMAC, bpf.KindARP)
				}
			}
		})
		equal(t, "verdict", verdict, Fenced)
	})
}

func TestVerifyListensForAWholeRoundOnABusySegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := 2 // frames wait: the first claim, by broadcast and by unicast
		a, _, _, _ := verifyAir(t, verification(), func(a *air) {
			a.onClaim = func(claim.Frame, net.HardwareAddr) {
				if busy--; busy >= 0 {
					time.Sleep(40 * time.Millisecond)
				}
			}
		})
		probes := a.list(func(s sent) bool { return isProbe(s) && broadcast(s.dst) })
		gap := probes[1].after - probes[0].after
		check.That(t, gap >= 50*time.Millisecond, "the first round took %s", gap)
	})
}

// withAndWithoutThePreviousMAC runs a test in bubbles of fake time.
func withAndWithoutThePreviousMAC(t *testing.T, test func(*testing.T, Verification)) {
	t.Helper()
	for name, mac := range map[string]net.HardwareAddr{"previous MAC known": holderMAC, "previous MAC unknown": nil} {
		bubble(t, name, func(t *testing.T) {
			v := verification()
			v.Claim.PreviousMAC = mac
			test(t, v)
		})
	}
}

func TestVerifyFindsAStrangerBehindTheAck(t *testing.T) {
	withAndWithoutThePreviousMAC(t, func(t *testing.T, v Verification) {
		_, verdict, e, _ := verifyAir(t, v, func(a *air) {
			guardedZombie(a)
			answering(hostMAC, bpf.KindARP)(a)
		})
		equal(t, "verdict", verdict, Answered)
		equal(t, "MAC", e.Answer.MAC.String(), hostMAC.String())
	})
}

func TestVerifyLateFramesOfAFencedHolderAreNoConflict(t *testing.T) {
	withAndWithoutThePreviousMAC(t, func(t *testing.T, v Verification) {
		_, verdict, _, _ := verifyAir(t, v, func(a *air) {
			guardedZombie(a)
			for late := 10 * time.Millisecond; late < SettleAfterClaim; late += 10 * time.Millisecond {
				time.AfterFunc(late, func() { a.kernel.speak(key(addr4), holderMAC, bpf.KindARP) })
			}
		})
		equal(t, "verdict", verdict, Fenced)
	})
}

// Two nodes may have holders with the same MAC.
func TestVerifyFindsAStrangerWithTheMACOfTheFencedHolder(t *testing.T) {
	const answer = time.Millisecond
	for _, tc := range []struct {
		name     string
		suppress bool
		want     Verdict
		took     time.Duration
	}{
		{"a host, which answers a unicast probe too", false, Answered, SettleAfterClaim + 2*answer},
		{"a switch, which answers for the MAC, but to no unicast probe", true, Fenced, SettleAfterClaim + answer + 50*time.Millisecond},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			_, verdict, e, took := verifyAir(t, verification(), func(a *air) {
				guardedZombie(a)
				a.onProbe = func(addr netip.Addr, dst net.HardwareAddr) {
					if broadcast(dst) || !tc.suppress {
						time.AfterFunc(answer, func() { a.kernel.speak(key(addr), holderMAC, bpf.KindARP) })
					}
				}
			})
			equal(t, "verdict", verdict, tc.want)
			equal(t, "acked", e.Acked, true)
			equal(t, "duration", took, tc.took)
		})
	}
}

func TestVerifyWithoutThePreviousTokenCountsNoAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := verification()
		v.Claim.PreviousToken = 0
		a, verdict, e, _ := verifyAir(t, v, guardedZombie)
		equal(t, "acked", e.Acked, false)
		equal(t, "verdict", verdict, Silent)
		equal(t, "asks", a.list(isClaim)[0].claim.Flags, 0)
	})
}

func TestVerifyUnguardedHolderAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, verdict, e, _ := verifyAir(t, verification(), answering(holderMAC, bpf.KindARP))
		equal(t, "verdict", verdict, Answered)
		equal(t, "by the previous holder", e.ByPrevious, true)
	})
}

func TestVerifyComesToAVerdict(t *testing.T) {
	// Without --bump-revision a store that went back gives tokens a second time.
	wentBack := func(a *air) {
		later := ownClaim.Token + 100
		a.kernel.states[key(addr4)] = bpf.State{MaxToken: later, AckedToken: later, AckMAC: otherMAC}
	}
	for _, tc := range []struct {
		name    string
		change  func(*Verification)
		prepare func(*air)
		want    Verdict
	}{
		{"an ack whose event was lost", nil, func(a *air) {
			a.kernel.loseEvents = true
			guardedZombie(a)
		}, Fenced},
		{"an ack of an older claim is none", nil, func(a *air) {
			a.onClaim = func(f claim.Frame, _ net.HardwareAddr) { a.kernel.ack(key(f.Addr), f.Network, f.Token-1, otherMAC) }
		}, Silent},
		{"an ack from before the store went back is none", nil, wentBack, Silent},
		{"the store went back, and the holder acknowledges now", nil, func(a *air) {
			wentBack(a)
			guardedZombie(a)
		}, Fenced},
		{"the slot of the holder is dead here", func(v *Verification) { v.SlotDead = true }, nil, Fenced},
		{"R1: it is dead, and a stranger answers", func(v *Verification) { v.SlotDead, v.Claim.PreviousMAC = true, nil },
			answering(hostMAC, bpf.KindARP), Answered},
		{"R1: a stranger answers, and an earlier holder was fenced here", nil, func(a *air) {
			a.kernel.states[key(addr4)] = bpf.State{MaxToken: 999} // the kernel remembers the claim
			answering(hostMAC, bpf.KindARP)(a)
		}, Answered},
		{"on a hearing parent", nil, nil, Silent},
		{"R2: on a deaf parent", nil, func(a *air) { delete(a.kernel.heard, parent) }, Unknown},
		{"R2: on a parent that heard the last node three minutes ago", nil,
			func(a *air) { a.kernel.heard[parent] = a.kernel.Now() - 3*time.Minute }, Unknown},
		{"alone on the segment", func(v *Verification) { v.OthersShare = false }, func(a *air) { delete(a.kernel.heard, parent) }, Silent},
		{"of a node that is gone", func(v *Verification) { v.Asserted = true }, func(a *air) { delete(a.kernel.heard, parent) }, Silent},
		{"R2: on a parent that hears others, and is not heard", nil, func(a *air) { a.mute = true }, Unknown},
		{"R2: on a parent where no host is known that should answer", nil, func(a *air) { a.kernel.speakers = nil }, Unknown},
		{"with a gateway that answers", func(v *Verification) { v.Gateway = canary4 }, func(a *air) { a.kernel.speakers = nil }, Silent},
		{"R2: where only a child of the parent answers a neighbour", nil, func(a *air) {
			a.onCanary = func() { a.kernel.speakAt(bpf.WhereObserverEgress, key(canary4), otherMAC, bpf.KindARPReply) }
		}, Unknown},
		{"R2: where only the parent's own reply comes back", nil, func(a *air) {
			a.onCanary = func() { a.kernel.speak(key(canary4), parentMAC, bpf.KindARPReply) }
		}, Unknown},
		{"R2: where hosts of the node itself may answer", func(v *Verification) { v.Gateway = canary4 }, func(a *air) { a.shared = true }, Unknown},
		{"where they may, and an address of another node answers", nil,
			func(a *air) { a.shared, a.kernel.vouched = true, []netip.Addr{canary4} }, Silent},
		{"R2: where only a proxy answers", func(v *Verification) { v.Probe.Ignore = []net.HardwareAddr{otherMAC} }, nil, Unknown},
		{"mute, of a node that is gone", func(v *Verification) { v.Asserted = true }, func(a *air) { a.mute = true }, Silent},
		{"without carrier", nil, func(a *air) { a.carrier = false }, Unknown},
		{"without observer", nil, func(a *air) { delete(a.kernel.observers, parent) }, Unknown},
		{"with the cable pulled meanwhile", nil,
			func(a *air) { time.AfterFunc(70*time.Millisecond, func() { a.setCarrier(false) }) }, Unknown},
		{"in mode Off", func(v *Verification) { v.Claim.Mode = v1alpha1.ModeOff }, nil, Unknown},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			v := verification()
			if tc.change != nil {
				tc.change(&v)
			}
			_, verdict, e, _ := verifyAir(t, v, tc.prepare)
			check.That(t, verdict == tc.want, "verdict %s (%s), want %s", verdict, e, tc.want)
		})
	}
}

// Only a question tells anything about the parent: without a canary to ask, nothing is reported.
func TestVerifyReportsWhetherACanaryAnswered(t *testing.T) {
	for _, tc := range []struct {
		name     string
		asserted bool
		prepare  func(*air)
		want     []string
	}{
		{"a parent that is heard", false, func(*air) {}, []string{"eth0 answered: true"}},
		{"a mute parent", false, func(a *air) { a.mute = true }, []string{"eth0 answered: false"}},
		{"no canary", false, func(a *air) { a.kernel.speakers = nil }, nil},
		{"silence that needs no canary", true, func(*air) {}, nil},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			var asked []string
			a, seg := newAir(t)
			seg.set.onAsked = func(parent string, answered bool) {
				asked = append(asked, fmt.Sprintf("%s answered: %t", parent, answered))
			}
			a.kernel.heard[parent] = a.kernel.Now() - time.Minute
			a.kernel.speakers = []netip.Addr{canary4}
			tc.prepare(a)
			v := verification()
			v.Asserted = tc.asserted
			_, _, err := seg.Verify(t.Context(), v)
			check.OK(t, err)
			equal(t, "reports", strings.Join(asked, ", "), strings.Join(tc.want, ", "))
		})
	}
}

func TestVerifyClaimsBeforeItProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, took := verifyAir(t, verification(), nil)
		all := a.list(func(sent) bool { return true })
		equal(t, "first frame is a claim", all[0].claim != nil, true)
		equal(t, "claims", len(a.list(isClaim)), 6)
		equal(t, "probes, one of them by unicast", len(a.list(isProbe)), 4)
		equal(t, "duration", took, 200*time.Millisecond)
	})
}

func TestVerifyObservesWithoutClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := verification()
		v.Claim.Mode = v1alpha1.ModeObserve
		a, verdict, _, took := verifyAir(t, v, nil)
		equal(t, "claims", len(a.list(isClaim)), 0)
		equal(t, "verdict", verdict, Silent)
		equal(t, "duration", took, 150*time.Millisecond)
	})
}

func TestVerifyWithAnOlderLeaseInstalledHere(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*Verification)
		prepare func(*air)
		flags   bpf.LeaseFlags
		want    Verdict
	}{
		{"hears nobody, so silence is unknown", func(*Verification) {}, func(*air) {}, 0, Unknown},
		{"is safe if the slot is dead", func(v *Verification) { v.SlotDead = true }, func(*air) {}, 0, Fenced},
		{"is safe by the ack of the true holder elsewhere", func(*Verification) {}, guardedZombie, 0, Fenced},
		{"hears a stranger beside the ack if it is unproven", func(*Verification) {}, func(a *air) {
			guardedZombie(a)
			answering(hostMAC, bpf.KindARP)(a)
		}, bpf.FlagUnproven, Answered},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			a, seg := newAir(t)
			a.kernel.heard[parent] = a.kernel.Now()
			older := bpf.Lease{Token: 900, Network: 42, Slot: 3, MAC: holderMAC, Flags: tc.flags}
			check.OK(t, a.kernel.Install(key(addr4), older))
			tc.prepare(a)
			v := verification()
			tc.change(&v)
			start := time.Now()
			verdict, e, err := seg.Verify(t.Context(), v)
			check.OK(t, err)
			check.That(t, verdict == tc.want, "%s (%s), want %s", verdict, e, tc.want)
			check.That(t, !e.Acked || tc.flags != 0 || time.Since(start) == 0, "it listens for %s after the ack, and hears no stranger", time.Since(start))
			_, ok, _ := a.kernel.Lease(key(addr4))
			check.That(t, ok, "the lease was removed")
		})
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, seg := newAir(t)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		verdict, _, err := seg.Verify(ctx, verification())
		equal(t, "verdict", verdict, Unknown)
		check.Is(t, err, context.DeadlineExceeded, "err =")
		_, watched, _ := a.kernel.Lease(key(addr4))
		check.That(t, !watched, "the address is still watched")
	})
}
