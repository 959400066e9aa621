// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestAReadyAddressIsBoundByOneWriteAndClaimedAfterTheAnswer(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
	l := r.WarmLease("10.0.0.7", true)
	answered := make(chan struct{})
	r.Wire.OnClaim = func(segment.Claim) { <-answered }
	request := r.Pod("web-0", "u1")
	creates, updates := fakenode.CountCalls(t, r, func() { r.Gets(request, "10.0.0.7") })
	check.That(t, creates == 0 && updates == 1, "%d creates and %d updates, want one update", creates, updates)
	check.That(t, !r.Wire.Took("probe 10.0.0.7") && !r.Wire.Took("announce 10.0.0.7"), "before the answer: %v", r.Wire.Did())
	close(answered)
	r.Eventually("it is announced after the claim", func() bool { return r.Wire.Took("announce 10.0.0.7") })
	bound := r.Lease(l.Name, v1alpha1.StateBound)
	check.That(t, bound.UID == l.UID && bound.Spec.Holder.ContainerID == request.ContainerID, "bound %+v", bound)
	token, _ := lease.Token(bound)
	installed, _, _ := r.Kernel.Lease(fakenode.Key("10.0.0.7"))
	check.That(t, installed.Token == token && r.Speaks(request, "10.0.0.7"), "installed %+v, want token %d", installed, token)
	check.That(t, !r.Warm.InStock(l.Name) && slices.Equal(r.Warm.Pairs, []string{"v4 on eth1"}), "ended %v, used %v", r.Warm.Gone, r.Warm.Pairs)
	r.MustDel(request)
	r.Want()
}

// A Warm lease on this node would keep the next pod that asks for that address, on another node, from it.
func TestNoPairIsLearntFromAPodThatAsksForAnAddress(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
	request := r.Pod("web-0", "u1")
	request.IPs = []netip.Addr{fakenode.Two}
	r.MustAdd(request)
	check.None(t, r.Warm.Pairs, "used")
}

func TestAPairIsLearntFromAnADDWithoutAWarmLease(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
	r.MustAdd(r.Pod("web-0", "u1"))
	check.List(t, r.Warm.Pairs, []string{"v4 on eth1"}, "used")
}

func TestAFenceHeardByTheLateClaimMutesThePod(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
	r.WarmLease("10.0.0.7", true)
	r.Wire.OnClaim = func(c segment.Claim) { r.Kernel.Claimed(fakenode.Key("10.0.0.7"), c.Token+1) }
	request := r.Pod("web-0", "u1")
	r.MustAdd(request)
	check.Receive(t, time.Minute, "the worker is told", r.Attachments.Pending.Wake())
	check.That(t, !r.Wire.Took("announce 10.0.0.7"), "R10: a fenced address was announced")
	check.That(t, !r.Speaks(request, "10.0.0.7"), "the slot still speaks")
	// The lease is the pod's own, so its token is renewed.
	r.Wire.OnClaim, r.Wire.Verdicts = nil, map[netip.Addr]segment.Verdict{netip.MustParseAddr("10.0.0.7"): segment.Silent}
	r.Settle()
	check.That(t, r.Speaks(request, "10.0.0.7") && r.Wire.Took("announce 10.0.0.7"), "the pod is still mute, although nobody else speaks")
}

func TestWhatBecomesOfABindingThatFails(t *testing.T) {
	for rule, c := range map[string]struct {
		// happens to the Warm lease before the write, or to the write.
		happens func(r *fakenode.Node, l *v1alpha1.IPLease)
		code    uint // 0: another address is given
		inStock bool
		left    []string
	}{
		"R5: the API server is away": {func(r *fakenode.Node, _ *v1alpha1.IPLease) { r.API.Breaks("update") },
			agentapi.CodeTryAgainLater, true, []string{"10.0.0.7 Warm"}},
		"the answer is lost": {func(r *fakenode.Node, _ *v1alpha1.IPLease) {
			r.API.After = func(string) error {
				r.API.After = nil
				return &fakenode.NetError{}
			}
		}, agentapi.CodeTryAgainLater, true, nil},
		"somebody has quarantined it": {func(r *fakenode.Node, l *v1alpha1.IPLease) {
			l = l.DeepCopy()
			l.Spec.State, l.Spec.Reason = v1alpha1.StateQuarantined, v1alpha1.ReasonNodeGone
			r.API.Put(l)
		}, 0, false, []string{"10.0.0.2 Bound", "10.0.0.7 Quarantined"}},
		"somebody has deleted it": {func(r *fakenode.Node, l *v1alpha1.IPLease) { r.API.Drop(l) }, 0, false, []string{"10.0.0.2 Bound"}},
		"somebody has remarked on it": {func(r *fakenode.Node, l *v1alpha1.IPLease) {
			l = l.DeepCopy()
			l.Spec.Message = "x"
			r.API.Put(l)
		}, 0, false, []string{"10.0.0.7 Bound"}},
	} {
		t.Run(rule, func(t *testing.T) {
			r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
			l := r.WarmLease("10.0.0.7", true)
			request := r.Pod("web-0", "u1")
			c.happens(r, l)
			if c.code != 0 {
				r.Refused(c.code, request)
			} else {
				r.MustAdd(request)
			}
			r.API.Before = nil
			r.Settle()
			r.Want(c.left...)
			check.That(t, r.Warm.InStock(l.Name) == c.inStock, "in stock: %v", !c.inStock)
			_, ok := r.Attachments.Get(request.ContainerID, "eth0")
			check.That(t, ok == (c.code == 0), "journalled: %v", ok)
		})
	}
}

func TestTheNextReadyAddressIsTakenWhenOneWasEnded(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
	first := r.WarmLease("10.0.0.7", true)
	r.WarmLease("10.0.0.8", true)
	r.API.Drop(first)
	r.Gets(r.Pod("web-0", "u1"), "10.0.0.8")
	r.Want("10.0.0.8 Bound")
}

func TestWhichAddressesAreTaken(t *testing.T) {
	here, elsewhere := func(*v1alpha1.IPLeaseSpec) {}, func(s *v1alpha1.IPLeaseSpec) { s.Parent = "eth2" }
	for rule, c := range map[string]struct {
		pool    *v1alpha1.IPPool
		ready   bool
		change  func(*v1alpha1.IPLeaseSpec)
		request string
		want    string
		probed  bool
	}{
		"one that is ready": {fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")), true, here, "", "10.0.0.7", false},
		"not one that is being proven, while others are free":              {fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")), false, here, "", "10.0.0.2", true},
		"not one of another parent":                                        {fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")), true, elsewhere, "", "10.0.0.2", true},
		"one that is being proven, proven here, rather than none":          {fakenode.Warmed(fakenode.V4("10.0.0.7")), false, here, "", "10.0.0.7", true},
		"one of another parent, proven on this one, rather than none":      {fakenode.Warmed(fakenode.V4("10.0.0.7")), true, elsewhere, "", "10.0.0.7", true},
		"one of a pool that wants none any more, rather than none":         {fakenode.V4("10.0.0.7"), true, here, "", "10.0.0.7", false},
		"one that is asked for":                                            {fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")), true, here, "10.0.0.7", "10.0.0.7", false},
		"one that is asked for, and being proven":                          {fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")), false, here, "10.0.0.7", "10.0.0.7", true},
		"one that is asked for, of a pool that wants none any more":        {fakenode.V4("10.0.0.2-10.0.0.9"), true, here, "10.0.0.7", "10.0.0.7", false},
		"not one that is ready when another is asked for, which is probed": {fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")), true, here, "10.0.0.5", "10.0.0.5", true},
	} {
		t.Run(rule, func(t *testing.T) {
			r := fakenode.New(t, c.pool)
			r.WarmLease("10.0.0.7", c.ready, c.change)
			request := r.Pod("web-0", "u1")
			if c.request != "" {
				request.IPs = []netip.Addr{netip.MustParseAddr(c.request)}
			}
			r.Gets(request, c.want)
			check.That(t, r.Wire.Took("probe "+c.want) == c.probed, "probed: %v", !c.probed)
			check.Equal(t, r.Lease(c.want, v1alpha1.StateBound).Spec.Parent, "eth1", "parent")
		})
	}
}

func TestAnAddressThatWasNotReadyIsSetAsideWhenSomebodyAnswers(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.7")))
	r.WarmLease("10.0.0.7", false)
	r.Wire.Answers[netip.MustParseAddr("10.0.0.7")] = fakenode.Stranger
	r.Refused(agentapi.CodeExhausted, r.Pod("web-0", "u1"))
	l := r.Lease("10.0.0.7", v1alpha1.StateQuarantined)
	check.That(t, l.Spec.Reason == v1alpha1.ReasonConflict && l.Spec.Conflict.MAC == fakenode.Stranger.String() && l.Spec.Holder == nil,
		"left %+v", l.Spec)
}

func TestAnAddressThatCameIntoDoubtIsNotHandedOutUnproven(t *testing.T) {
	for name, c := range map[string]struct {
		doubt segment.Doubt
		mode  v1alpha1.ConflictMode
		given string
		sent  []string
		left  []string
	}{
		"the parent lost its carrier: probed": {
			segment.DoubtCarrier, v1alpha1.ModeEnforce, "10.0.0.7",
			[]string{"probe 10.0.0.7", "claim 10.0.0.7", "announce 10.0.0.7"}, []string{"10.0.0.7 Bound", "10.0.0.8 Warm"},
		},
		"somebody speaks: set aside, and another given": {
			segment.DoubtSpoken, v1alpha1.ModeEnforce, "10.0.0.8",
			[]string{"claim 10.0.0.8", "announce 10.0.0.8"}, []string{"10.0.0.7 Quarantined", "10.0.0.8 Bound"},
		},
		"somebody speaks, in mode Observe: probed": {
			segment.DoubtSpoken, v1alpha1.ModeObserve, "10.0.0.7",
			[]string{"probe 10.0.0.7", "announce 10.0.0.7"}, []string{"10.0.0.7 Bound", "10.0.0.8 Warm"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.Warmed(fakenode.Pool("v4", "10.0.0.0/24", c.mode, "10.0.0.2-10.0.0.9")))
			r.WarmLease("10.0.0.7", true)
			r.WarmLease("10.0.0.8", true)
			r.Warm.Doubts = map[string]segment.Doubt{"10.0.0.7": c.doubt}
			r.Gets(r.Pod("web-0", "u1"), c.given)
			r.Eventually("it is announced", func() bool { return r.Wire.Took("announce " + c.given) })
			check.List(t, r.Wire.Did(), c.sent, "sent")
			r.Want(c.left...)
		})
	}
}

func TestALaterPoolsReadyAddressWaitsForTheEarlierPoolToLookFull(t *testing.T) {
	for name, c := range map[string]struct {
		total, used int64
		want        string
	}{"is free": {8, 7, "10.0.0.2"}, "is full": {8, 8, "10.1.0.7"}, "is not counted yet": {0, 0, "10.0.0.2"}} {
		t.Run("the first pool "+name, func(t *testing.T) {
			first := fakenode.Counted(fakenode.Warmed(fakenode.Pool("a", "10.0.0.0/24", v1alpha1.ModeEnforce, "10.0.0.2-10.0.0.9")), c.total, c.used)
			second := fakenode.Warmed(fakenode.Pool("b", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2-10.1.0.9"))
			r := fakenode.New(t, first, second)
			r.WarmLease("10.1.0.7", true, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "b" })
			got := r.MustAdd(r.Pod("web-0", "u1"))
			if c.used == 8 && !slices.Equal(got, []string{c.want}) || c.used != 8 && got[0][:5] != c.want[:5] {
				t.Errorf("got %v", got)
			}
		})
	}
}

// The addresses that are kept for the namespace come first, and are never Warm.
func TestThePodsOfANamespaceGetReadyAddressesAfterItsOwn(t *testing.T) {
	for name, taken := range map[string]bool{"the namespace's own is free": false, "it has a lease": true} {
		t.Run(name, func(t *testing.T) {
			pool := fakenode.Counted(fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")), 8, 2)
			want := "10.0.0.9"
			if taken {
				offset, _ := poolset.Offset(netip.MustParsePrefix(pool.Spec.Subnet), netip.MustParseAddr(want))
				pool.Status.InUse = poolset.EncodeBitmap(poolset.Bitmap{}.Mark(offset))
				want = "10.0.0.7"
			}
			r := fakenode.New(t, pool)
			kept(r, v1alpha1.ReservedFor{}, "10.0.0.9")
			if taken {
				r.API.Put(fakenode.Held("10.0.0.9"))
			}
			r.WarmLease("10.0.0.7", true, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "v4" })
			r.Gets(r.Pod("web-0", "u1"), want)
		})
	}
}

func TestAFullPoolIsWaitedForWhileOthersKeepAddressesReady(t *testing.T) {
	other := func(s *v1alpha1.IPLeaseSpec) { s.State, s.Holder = v1alpha1.StateWarm, nil }
	t.Run("until one is given up", func(t *testing.T) {
		r := fakenode.New(t, fakenode.V4("10.0.0.2"))
		l := fakenode.Held("10.0.0.2", other)
		r.API.Put(l)
		r.API.Freed = nil
		time.AfterFunc(100*time.Millisecond, func() { r.API.Drop(l) })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		check.Value(r.Add(ctx, r.Pod("web-0", "u1")))(t)
		r.Want("10.0.0.2 Bound")
	})
	t.Run("and is not called exhausted at the deadline", func(t *testing.T) {
		r := fakenode.New(t, fakenode.V4("10.0.0.2"))
		r.API.Put(fakenode.Held("10.0.0.2", other))
		r.Refused(agentapi.CodeTryAgainLater, r.Pod("web-0", "u1"))
	})
}

// A living pod's record is lost, and another node has made the address Warm before it hears the
// pod. It gives way once it hears the pod.
func TestAPodWhoseAddressWasMadeWarmIsLeftAloneForAMoment(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	request := r.Pod("web-0", "u1")
	r.MustAdd(request)
	r.API.Drop(r.Lease("10.0.0.2", v1alpha1.StateBound))
	l := r.WarmLease("10.0.0.2", false)
	l.Spec.NodeName, l.Spec.Session = "n2", "node-2/boot-1"
	r.API.Put(l)
	for _, e := range r.Attachments.All() {
		r.Attachments.Pending.Add(e.Attachment())
	}
	if left, err := r.Recovery.Resume(t.Context(), attachment.AskTimeout); left != 1 || !r.Speaks(request, "10.0.0.2") {
		t.Fatalf("%d entries left (%v), the pod speaks: %v", left, err, r.Speaks(request, "10.0.0.2"))
	}
	// The probe of the Warm lease was answered.
	l.Spec, _ = lease.ThrowOut(lease.Evidence{MAC: fakenode.MacOf(request.NetNS).String(), Source: "probe"})(l.Spec, lease.Owner{Now: time.Now()})
	r.API.Put(l)
	r.Settle()
	bound := r.Lease("10.0.0.2", v1alpha1.StateBound)
	check.That(t, bound.Spec.Holder.ContainerID == request.ContainerID && r.Speaks(request, "10.0.0.2"), "bound %+v", bound.Spec)
}

// Wherever the agent dies, nothing is lost: the next one ends what was bound,
// and what was not is Warm as before.
func TestABindingThatIsCutShortAnywhereLosesNothing(t *testing.T) {
	for step := range 20 {
		t.Run(fmt.Sprintf("after %d writes", step), func(t *testing.T) {
			r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
			l := r.WarmLease("10.0.0.7", true)
			request := r.Pod("web-0", "u1")
			r.Death.Left = step
			if check.Err(r.Add(t.Context(), request)) == nil {
				return
			}
			r.Restart()
			r.Settle()
			for _, left := range r.API.Leases() {
				check.That(t, left.Name == l.Name && left.Spec.State == v1alpha1.StateWarm, "left %s %+v", left.Name, left.Spec)
			}
			check.None(t, r.Kernel.Speakers(fakenode.Key("10.0.0.7")), "slots that speak:")
			e, ok := r.Attachments.Get(request.ContainerID, "eth0")
			check.That(t, !ok || e.Phase == attachment.Releasing, "journalled %+v", e)
		})
	}
}

// R1: a write takes as long as the API server does, and somebody may speak for the address meanwhile.
func TestADoubtThatArisesDuringASlowWriteCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.2-10.0.0.9")))
		r.WarmLease("10.0.0.7", true)
		r.WarmLease("10.0.0.8", true)
		r.API.After = func(string) error {
			r.API.After = nil
			synctest.Wait() // the kernel has been asked
			r.Warm.Hear("10.0.0.7", segment.DoubtSpoken)
			time.Sleep(time.Second)
			return nil
		}
		r.Gets(r.Pod("web-0", "u1"), "10.0.0.8")
		r.After.Wait()
		r.Want("10.0.0.7 Quarantined", "10.0.0.8 Bound")
	})
}
