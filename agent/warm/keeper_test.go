// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/test/check"
)

const (
	warm2 = "10.0.0.2 Warm"
	warm3 = "10.0.0.3 Warm"
	warm4 = "10.0.0.4 Warm"
)

func TestAUsedPairIsWarmOnceItsAddressesAreProven(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.pass(time.Minute)
		r.want()
		r.keeper.Used("v4", "eth1")
		r.pass(proofTakes - time.Second)
		r.want(warm2, warm3)
		r.ready()
		check.Equal(r.t, r.told().gauge, [2]int{0, 2}, "gauge")
		r.pass(2 * time.Second)
		r.ready("10.0.0.2", "10.0.0.3")
		check.Equal(r.t, r.told().gauge, [2]int{2, 0}, "gauge")
		s := r.lease("10.0.0.2").Spec
		check.That(r.t, s.NodeName == thisNode && s.Session == thisSession && s.Parent == "eth1" && s.Holder == nil, "made %+v", s)
		r.pass(30 * time.Minute)
		r.ready("10.0.0.2", "10.0.0.3")
		r.pass(30 * time.Minute)
		r.want()
		check.List(r.t, r.told().lost, []string{string(Unused), string(Unused)}, "lost")
	})
}

func TestAPairThatThePoolNamesIsWarmWithoutAPod(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.pass(proofTakes + time.Second)
		r.ready("10.0.0.2", "10.0.0.3")
		r.pass(2 * time.Hour)
		r.ready("10.0.0.2", "10.0.0.3")
	}, v4(func(p *v1alpha1.IPPool) { p.Spec.Parents = []string{"eth1", "nowhere"} }))
}

func TestWhileNobodyKnowsWhatThePoolNamesNothingIsGivenUp(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.pass(proofTakes + time.Second)
		r.set(func() { r.unnamed = errors.New("interrupted") })
		r.wake()
		r.pass(time.Minute)
		r.ready("10.0.0.2", "10.0.0.3")
		r.want(warm2, warm3)
	}, v4(func(p *v1alpha1.IPPool) { p.Spec.Parents = []string{"eth1"} }))
}

func TestWhileInterfacesCannotBeLookedForNothingIsGivenUp(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.warmed()
		r.set(func() { r.unseen = errors.New("too many open files") })
		r.wake()
		r.pass(time.Minute)
		r.ready("10.0.0.2", "10.0.0.3")
		r.want(warm2, warm3)
	})
}

func TestABoundAddressIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		l, ok := r.keeper.Take(wishV4())
		check.Must(t, ok && l.Ready && l.Name == "10.0.0.2", "took %+v, %v", l, ok)
		r.wake()
		r.want(warm2, warm3) // taken, and counted
		r.ready("10.0.0.3")
		store := lease.NewStore(lease.Options{Client: r.api, Reader: r.api, Node: thisNode, Session: thisSession, Clock: r.keeper.Clock})
		bound, err := store.BindWarm(t.Context(), l.IPLease, lease.Request{Pool: "v4", Addr: netip.MustParseAddr("10.0.0.2"), Holder: v1alpha1.Holder{Namespace: "shop", Pod: "web", ContainerID: "c"}})
		check.Must(t, err == nil && bound.UID == l.UID, "bound %v, %v", bound, err)
		r.keeper.Ended(l)
		r.pass(proofTakes + time.Second)
		r.want("10.0.0.2 Bound", warm3, warm4)
		r.ready("10.0.0.3", "10.0.0.4")
		check.That(t, len(r.told().lost) == 0 && r.told().taken[true] != 0, "lost %v, taken %v", r.told().lost, r.told().taken)
	})
}

func TestASightingThrowsAnAddressOut(t *testing.T) {
	for name, quietly := range map[string][]bool{"told by an event": nil, "found by the ADD that takes it": {true}} {
		inBubbleOf(t, name, func(t *testing.T, r *rig) {
			r.warmed()
			r.hear("10.0.0.2", segment.DoubtSpoken, quietly...)
			r.ready("10.0.0.3")
			if quietly != nil {
				r.hear("10.0.0.2", segment.DoubtSpoken) // the watcher looks as well
			}
			r.want("10.0.0.2 Quarantined", warm3)
			r.pass(gather)
			r.want("10.0.0.2 Quarantined", warm3, warm4)
			s := r.lease("10.0.0.2").Spec
			check.That(t, s.Reason == v1alpha1.ReasonConflict && s.Conflict.MAC == hostMAC.String() && s.Conflict.Source == "observer" &&
				s.NodeName == thisNode, "set aside %+v", s)
			r.pass(proofTakes + time.Second)
			r.ready("10.0.0.3", "10.0.0.4")
			check.That(t, r.told().conflicts == 1 && slices.Equal(r.told().lost, []string{"Conflict"}),
				"%d conflicts, lost %v", r.told().conflicts, r.told().lost)
		})
	}
}

func TestAnAnswerToTheProofThrowsAnAddressOut(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.keeper.Used("v4", "eth1")
		r.pass(time.Second)
		r.hear("10.0.0.2", segment.DoubtSpoken)
		r.pass(proofTakes)
		r.want("10.0.0.2 Quarantined", warm3, warm4)
		r.ready("10.0.0.3")
	})
}

func TestInModeObserveASpeakerIsReportedAndTheAddressGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		r.hear("10.0.0.2", segment.DoubtSpoken)
		r.pass(proofTakes + time.Second)
		r.want(warm3, warm4)
		check.That(t, r.told().conflicts == 1, "%d conflicts", r.told().conflicts)
	}, v4(func(p *v1alpha1.IPPool) {
		p.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: v1alpha1.ModeObserve}
	}))
}

func TestAVoidedProofIsMadeAgainBeforeTheAddressIsGiven(t *testing.T) {
	for _, doubt := range []segment.Doubt{segment.DoubtCarrier, segment.DoubtObserver} {
		inBubbleOf(t, string(doubt), func(t *testing.T, r *rig) {
			r.warmed()
			r.hear("10.0.0.2", doubt)
			r.ready("10.0.0.3")
			r.pass(time.Minute)
			r.ready("10.0.0.3")
			r.hear("10.0.0.2", segment.DoubtNone)
			r.ready("10.0.0.3") // not before a whole proof
			r.pass(2*proofTakes + 2*time.Second)
			r.ready("10.0.0.2", "10.0.0.3")
			r.want(warm2, warm3)
			check.That(t, r.proofs("10.0.0.2") >= 3 && slices.Equal(r.told().lost, []string{string(doubt)}),
				"%d proofs, lost %v", r.proofs("10.0.0.2"), r.told().lost)
		})
	}
}

func TestLeasesAreGivenUp(t *testing.T) {
	for reason, change := range map[Reason]func(*v1alpha1.IPPool){
		Scarce:       func(p *v1alpha1.IPPool) { p.Status.Scarce = true },
		PoolDisabled: func(p *v1alpha1.IPPool) { p.Spec.Disable = new(true) },
		NotThisNode:  func(p *v1alpha1.IPPool) { p.Spec.NodeName = []string{"n2"} },
		Surplus:      func(p *v1alpha1.IPPool) { p.Spec.Warm = new(int64(0)) },
		Unused:       func(p *v1alpha1.IPPool) { p.Spec.Parents = []string{"elsewhere"} },
	} {
		inBubbleOf(t, string(reason), func(t *testing.T, r *rig) {
			r.warmed()
			r.changePool(change)
			r.want()
			r.ready()
			check.That(t, slices.Equal(r.told().lost, []string{string(reason), string(reason)}) && r.told().gauge == [2]int{},
				"lost %v, gauge %v", r.told().lost, r.told().gauge)
		})
	}
	inBubbleOf(t, string(Cordoned), func(t *testing.T, r *rig) {
		r.warmed()
		node := &corev1.Node{}
		check.OK(t, r.api.Get(t.Context(), client.ObjectKey{Name: thisNode}, node))
		node.Spec.Unschedulable = true
		check.OK(t, r.api.Update(t.Context(), node))
		r.wake()
		r.want()
	})
	inBubbleOf(t, "reserved", func(t *testing.T, r *rig) {
		r.warmed()
		err := r.api.Create(t.Context(), &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.2"}}})
		check.OK(t, err)
		r.wake()
		r.want(warm3, warm4)
	})
	inBubbleOf(t, "the parent is gone", func(_ *testing.T, r *rig) {
		r.warmed()
		delete(r.parents, "eth1")
		r.wake()
		r.want()
	})
}

func TestALeaseThatAnADDHasTakenIsLeftToIt(t *testing.T) {
	for name, happens := range map[string]func(*rig){
		"somebody speaks": func(r *rig) { r.hear("10.0.0.2", segment.DoubtSpoken) },
		"scarce":          func(r *rig) { r.changePool(func(p *v1alpha1.IPPool) { p.Status.Scarce = true }) },
	} {
		inBubbleOf(t, name, func(t *testing.T, r *rig) {
			r.warmed()
			l, _ := r.keeper.Take(wishV4())
			happens(r)
			r.pass(time.Second)
			check.Must(t, r.leases()[l.Name] == v1alpha1.StateWarm, "it is %v", r.leases())
			r.keeper.PutBack(l)
			r.wake()
			r.pass(time.Second)
			check.That(t, r.leases()[l.Name] != v1alpha1.StateWarm, "it is %v after it was put back", r.leases())
		})
	}
}

func TestAnAgentThatStartsProvesWhatItFindsAgain(t *testing.T) {
	for name, session := range map[string]string{"in the same session": thisSession, "after a reboot": "node-1/boot-2"} {
		inBubbleOf(t, name, func(_ *testing.T, r *rig) {
			r.warmed()
			r.restart(session)
			r.pass(time.Second)
			r.ready()
			r.pass(proofTakes)
			r.ready("10.0.0.2", "10.0.0.3")
			r.want(warm2, warm3)
		})
	}
	inBubbleOf(t, "and gives up what nothing wants any more", func(_ *testing.T, r *rig) {
		r.warmed()
		_ = r.book.Put(nil)
		r.restart(thisSession)
		r.pass(time.Second)
		r.want()
	})
}

func TestOthersLeasesAreLeftAlone(t *testing.T) {
	other := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.50"}, Spec: v1alpha1.IPLeaseSpec{
		Address: "10.0.0.50", Pool: "v4", State: v1alpha1.StateWarm, NodeName: "n2", Parent: "eth1",
	}}
	inBubble(t, func(_ *testing.T, r *rig) {
		r.warmed()
		r.changePool(func(p *v1alpha1.IPPool) { p.Status.Scarce = true })
		r.want("10.0.0.50 Warm")
	}, other)
}

func TestWhileTheAPIServerIsAwayNothingIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		r.set(func() { r.away = true })
		r.hear("10.0.0.2", segment.DoubtSpoken)
		r.pass(time.Minute)
		r.ready("10.0.0.3") // what was proven stays so
		r.want(warm2, warm3)
		r.set(func() { r.away = false })
		r.pass(retryMost + proofTakes + time.Second)
		// The failed tries went on to other addresses.
		check.That(t, r.leases()["10.0.0.2"] == v1alpha1.StateQuarantined && len(r.leases()) == 3 && r.told().gauge == [2]int{2, 0},
			"leases %v, gauge %v", r.leases(), r.told().gauge)
		check.That(t, len(r.writes) <= 20, "%d writes: %v", len(r.writes), r.writes)
	})
}

// A pod of this node whose record was lost holds the address, so that nobody
// hears its frames as a stranger's.
func TestAnAddressThatAPodHereHoldsIsThrownOutWithThePodsMAC(t *testing.T) {
	podMAC := hostMAC[:5:5]
	podMAC = append(podMAC, 9)
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		r.held[netip.MustParseAddr("10.0.0.2")] = podMAC
		r.hear("10.0.0.2", segment.DoubtHeld)
		s := r.lease("10.0.0.2").Spec
		check.That(t, s.State == v1alpha1.StateQuarantined && s.Conflict.MAC == podMAC.String(), "set aside %+v", s)
		r.hear("10.0.0.3", segment.DoubtHeld) // by an interface that is going
		r.pass(time.Minute)
		check.Equal(t, r.lease("10.0.0.3").Spec.State, v1alpha1.StateWarm, "left")
		r.hear("10.0.0.3", segment.DoubtNone)
		r.pass(2*proofTakes + 2*time.Second)
		r.ready("10.0.0.3", "10.0.0.4")
	})
}

func TestAnADDThatWouldGetNoneMayHaveOneThatIsNotReady(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		r.hear("10.0.0.2", segment.DoubtCarrier)
		for want, wish := range map[string]Wish{
			"10.0.0.3 ready":     {Pool: "v4", Parent: "eth1", ParentIndex: 7, Mode: v1alpha1.ModeEnforce, Has: all, Any: true},
			"10.0.0.2 not ready": {Pool: "v4", Parent: "eth1", ParentIndex: 7, Mode: v1alpha1.ModeEnforce, Has: all, Any: true, Addr: netip.MustParseAddr("10.0.0.2")},
			"10.0.0.3 not ready": {Pool: "v4", Parent: "eth2", Mode: v1alpha1.ModeEnforce, Has: all, Any: true, Addr: netip.MustParseAddr("10.0.0.3")},
		} {
			l, ok := r.keeper.Take(wish)
			got := l.Name + map[bool]string{true: " ready", false: " not ready"}[l.Ready]
			check.That(t, ok && got == want, "took %s, %v, want %s", got, ok, want)
			r.keeper.PutBack(l)
		}
		_, ok := r.keeper.Take(Wish{Pool: "other", Parent: "eth1", Has: all, Any: true})
		check.That(t, !ok, "took a lease of another pool")
	})
}

func TestWhatAPoolWantsProvenAnotherWayIsProvenAnew(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		strict := wishV4()
		strict.Mode = v1alpha1.ModeObserve
		_, ok := r.keeper.Take(strict)
		check.That(t, !ok, "took what was proven in another mode")
		elsewhere := wishV4()
		elsewhere.Has = func(netip.Addr) bool { return false }
		_, ok = r.keeper.Take(elsewhere)
		check.That(t, !ok, "took what the pool does not hand out")
		r.changePool(func(p *v1alpha1.IPPool) {
			p.Spec.ConflictDetection = &v1alpha1.ConflictDetection{IgnoreMACs: []string{"02:00:00:00:00:77"}}
		})
		r.wake()
		r.ready()
		r.pass(2 * proofTakes)
		r.ready("10.0.0.2", "10.0.0.3")
	})
}

// An ADD may take a lease between the look at the facts and the step.
func TestAStepThatComesTooLateLeavesATakenLeaseAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		l, _ := r.keeper.Take(wishV4())
		check.OK(t, r.keeper.shed(t.Context(), l.IPLease, Step{Do: Shed, Lease: l.Name, Pair: eth1, Reason: Scarce}))
		r.want(warm2, warm3)
		r.keeper.PutBack(l)
		r.ready("10.0.0.2", "10.0.0.3")
	})
}

func TestWhileADDsAreUnderWayLeasesAreGivenUpButNoneIsMade(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		ended := make(chan struct{})
		r.set(func() { r.adds = ended })
		r.keeper.Used("v4", "eth1")
		r.pass(time.Minute)
		r.want()
		close(ended)
		r.pass(proofTakes + time.Second)
		r.want(warm2, warm3)

		ended = make(chan struct{})
		r.set(func() { r.adds = ended })
		r.changePool(func(p *v1alpha1.IPPool) { p.Spec.Disable = new(true) })
		r.pass(time.Minute)
		r.want()
		close(ended)
	})
}

// What looks like an API server that is away may be about one lease, as a webhook that does not answer is.
func TestALeaseThatCannotBeGivenUpKeepsNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		r.set(func() { r.stuck = "delete 10.0.0.2" })
		err := r.api.Create(t.Context(), &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.0.0.2"}}})
		check.OK(t, err)
		r.wake()
		r.pass(time.Minute)
		r.want(warm2, warm3, warm4)
		r.set(func() { r.stuck = "" })
		r.pass(2 * retryMost)
		r.want(warm3, warm4)
	})
}

func TestWhatWasProvenOnAnInterfaceIsNotOnAnotherOneOfItsName(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		// The old one lives on under another name, with all that was proven there.
		r.set(func() { r.parents["eth1"] = 8 })
		anew := wishV4()
		anew.ParentIndex = 8
		l, ok := r.keeper.Take(anew)
		check.That(t, !ok, "took %+v", l)
		r.wake()
		r.pass(2 * proofTakes)
		for range 2 {
			_, ok := r.keeper.Take(anew)
			check.That(t, ok, "nothing is proven on the new one")
		}
		check.That(t, r.proofs("10.0.0.2") == 2 && r.proofs("10.0.0.3") == 2, "%d and %d proofs", r.proofs("10.0.0.2"), r.proofs("10.0.0.3"))
	})
}

func TestAProxyMakesNoEndlessWarmLeases(t *testing.T) {
	for _, mode := range []v1alpha1.ConflictMode{v1alpha1.ModeEnforce, v1alpha1.ModeObserve} {
		inBubbleOf(t, string(mode), func(t *testing.T, r *rig) {
			r.proxied = true
			r.keeper.Used("v4", "eth1")
			made := func() (n int) {
				r.mu.Lock()
				defer r.mu.Unlock()
				for _, w := range r.writes {
					if len(w) > 6 && w[:6] == "create" {
						n++
					}
				}
				return n
			}
			r.pass(foreignhost.Interval / 2)
			n := made()
			check.That(t, n >= v1alpha1.ManyAddresses && n <= v1alpha1.ManyAddresses+3, "%d leases were created in half an interval", n)
			r.pass(10 * foreignhost.Interval)
			n = made()
			check.That(t, n <= 40, "%d leases were created in ten intervals", n)
			want := v1alpha1.ManyAddresses
			if mode == v1alpha1.ModeObserve {
				want = 0
			}
			check.That(t, len(r.leases()) == want, "leases %v", r.leases())
			// The proxy is named: the next leases are made at once.
			before := made()
			r.changePool(func(p *v1alpha1.IPPool) { p.Spec.ConflictDetection.IgnoreMACs = []string{"02:bd:00:00:00:01"} })
			r.pass(5 * time.Second)
			check.That(t, made() != before, "no lease was created after the pool changed")
		}, v4(func(p *v1alpha1.IPPool) { p.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: mode} }))
	}
}

// Another node wants the very address of a Warm lease.
func TestAWantedLeaseIsReleasedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.warmed()
		l := r.lease("10.0.0.2")
		meant := v1alpha1.LeaseVersion{Name: l.Name, Version: l.ResourceVersion}
		older := v1alpha1.LeaseVersion{Name: l.Name, Version: "0"}
		check.OK(t, r.keeper.Release(t.Context(), []v1alpha1.LeaseVersion{older, {Name: "10.0.0.9", Version: "1"}}))
		r.want(warm2, warm3)
		taken, ok := r.keeper.Take(Wish{Pool: "v4", Addr: l.Spec.Addr(), Any: true, Has: func(netip.Addr) bool { return true }})
		check.Must(t, ok, "it cannot be taken")
		check.OK(t, r.keeper.Release(t.Context(), []v1alpha1.LeaseVersion{meant}))
		r.want(warm2, warm3)
		r.keeper.PutBack(taken)
		check.OK(t, r.keeper.Release(t.Context(), []v1alpha1.LeaseVersion{meant}))
		r.want(warm3)
		check.List(t, r.told().lost, []string{string(Wanted)}, "lost")
	})
}
