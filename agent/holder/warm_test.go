package holder

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func TestAReadyAddressIsBoundByOneWriteAndClaimedAfterTheAnswer(t *testing.T) {
	r := newRig(t, warmed(v4("10.0.0.2-10.0.0.9")))
	l := r.warmLease("10.0.0.7", true)
	answered := make(chan struct{})
	r.wire.onClaim = func(segment.Claim) { <-answered }
	request := r.pod("web-0", "u1")
	creates, updates := countCalls(t, r, func() {
		if got := r.add(request); !slices.Equal(got, []string{"10.0.0.7"}) {
			t.Fatalf("got %v", got)
		}
	})
	if creates != 0 || updates != 1 {
		t.Errorf("%d creates and %d updates, want one update", creates, updates)
	}
	if r.wire.took("probe 10.0.0.7") || r.wire.took("announce 10.0.0.7") {
		t.Errorf("before the answer: %v", r.wire.did)
	}
	close(answered)
	r.eventually("it is announced after the claim", func() bool { return r.wire.took("announce 10.0.0.7") })
	bound := r.lease(l.Name, v1alpha1.StateBound)
	if bound.UID != l.UID || bound.Spec.Holder.ContainerID != request.ContainerID {
		t.Errorf("bound %+v", bound)
	}
	token, _ := lease.Token(bound)
	if installed, _, _ := r.kernel.Lease(key("10.0.0.7")); installed.Token != token || !r.speaks(request, "10.0.0.7") {
		t.Errorf("installed %+v, want token %d", installed, token)
	}
	if r.warm.inStock(l.Name) || !slices.Equal(r.warm.used, []string{"v4 on eth1"}) {
		t.Errorf("ended %v, used %v", r.warm.ended, r.warm.used)
	}
	r.del(request)
	r.want()
}

func TestAPairIsLearntFromAnADDWithoutAWarmLease(t *testing.T) {
	r := newRig(t, warmed(v4("10.0.0.2-10.0.0.9")))
	r.add(r.pod("web-0", "u1"))
	if !slices.Equal(r.warm.used, []string{"v4 on eth1"}) {
		t.Errorf("used %v", r.warm.used)
	}
}

func TestAFenceHeardByTheLateClaimEndsThePod(t *testing.T) {
	r := newRig(t, warmed(v4("10.0.0.2-10.0.0.9")))
	r.warmLease("10.0.0.7", true)
	r.wire.onClaim = func(c segment.Claim) { r.kernel.claimed(key("10.0.0.7"), c.Token+1) }
	request := r.pod("web-0", "u1")
	r.add(request)
	r.eventually("the worker is told", func() bool {
		r.pending.mu.Lock()
		defer r.pending.mu.Unlock()
		return len(r.pending.waiting) > 0
	})
	if r.wire.took("announce 10.0.0.7") {
		t.Error("R10: a fenced address was announced")
	}
	r.settle()
	if r.speaks(request, "10.0.0.7") {
		t.Error("the slot still speaks")
	}
}

func TestWhatBecomesOfABindingThatFails(t *testing.T) {
	for rule, c := range map[string]struct {
		// happens to the Warm lease before the write, or to the write.
		happens func(r *rig, l *v1alpha1.IPLease)
		code    uint // 0: another address is given
		inStock bool
		left    []string
	}{
		"R5: the API server is away": {func(r *rig, _ *v1alpha1.IPLease) {
			r.api.before = func(verb, _ string) error {
				if verb == "update" {
					return &netError{}
				}
				return nil
			}
		}, agentapi.CodeTryAgainLater, true, []string{"10.0.0.7 Warm"}},
		"the answer is lost": {func(r *rig, _ *v1alpha1.IPLease) {
			r.api.after = func(string) error {
				r.api.after = nil
				return &netError{}
			}
		}, agentapi.CodeTryAgainLater, true, nil},
		"somebody has quarantined it": {func(r *rig, l *v1alpha1.IPLease) {
			l = l.DeepCopy()
			l.Spec.State, l.Spec.Reason = v1alpha1.StateQuarantined, v1alpha1.ReasonNodeGone
			r.api.put(l)
		}, 0, false, []string{"10.0.0.2 Bound", "10.0.0.7 Quarantined"}},
		"somebody has deleted it": {func(r *rig, l *v1alpha1.IPLease) { r.api.drop(l) }, 0, false, []string{"10.0.0.2 Bound"}},
		"somebody has remarked on it": {func(r *rig, l *v1alpha1.IPLease) {
			l = l.DeepCopy()
			l.Spec.Message = "x"
			r.api.put(l)
		}, 0, false, []string{"10.0.0.7 Bound"}},
	} {
		t.Run(rule, func(t *testing.T) {
			r := newRig(t, warmed(v4("10.0.0.2-10.0.0.9")))
			l := r.warmLease("10.0.0.7", true)
			request := r.pod("web-0", "u1")
			c.happens(r, l)
			if c.code != 0 {
				r.refused(c.code, request)
			} else {
				r.add(request)
			}
			r.api.before = nil
			r.settle()
			r.want(c.left...)
			if r.warm.inStock(l.Name) != c.inStock {
				t.Errorf("in stock: %v", !c.inStock)
			}
			if _, ok := r.Journal.Get(request.ContainerID, "eth0"); ok != (c.code == 0) {
				t.Errorf("journalled: %v", ok)
			}
		})
	}
}

func TestTheNextReadyAddressIsTakenWhenOneWasEnded(t *testing.T) {
	r := newRig(t, warmed(v4("10.0.0.2-10.0.0.9")))
	first := r.warmLease("10.0.0.7", true)
	r.warmLease("10.0.0.8", true)
	r.api.drop(first)
	if got := r.add(r.pod("web-0", "u1")); !slices.Equal(got, []string{"10.0.0.8"}) {
		t.Errorf("got %v", got)
	}
	r.want("10.0.0.8 Bound")
}

func TestWhichAddressesAreTaken(t *testing.T) {
	elsewhere := func(s *v1alpha1.IPLeaseSpec) { s.Parent = "eth2" }
	for rule, c := range map[string]struct {
		pool    *v1alpha1.IPPool
		ready   bool
		change  func(*v1alpha1.IPLeaseSpec)
		request string
		want    string
		probed  bool
	}{
		"one that is ready": {warmed(v4("10.0.0.2-10.0.0.9")), true, nil, "", "10.0.0.7", false},
		"not one that is being proven, while others are free":              {warmed(v4("10.0.0.2-10.0.0.9")), false, nil, "", "10.0.0.2", true},
		"not one of another parent":                                        {warmed(v4("10.0.0.2-10.0.0.9")), true, elsewhere, "", "10.0.0.2", true},
		"one that is being proven, proven here, rather than none":          {warmed(v4("10.0.0.7")), false, nil, "", "10.0.0.7", true},
		"one of another parent, proven on this one, rather than none":      {warmed(v4("10.0.0.7")), true, elsewhere, "", "10.0.0.7", true},
		"one of a pool that wants none any more, rather than none":         {v4("10.0.0.7"), true, nil, "", "10.0.0.7", false},
		"one that is asked for":                                            {warmed(v4("10.0.0.2-10.0.0.9")), true, nil, "10.0.0.7", "10.0.0.7", false},
		"one that is asked for, and being proven":                          {warmed(v4("10.0.0.2-10.0.0.9")), false, nil, "10.0.0.7", "10.0.0.7", true},
		"one that is asked for, of a pool that wants none any more":        {v4("10.0.0.2-10.0.0.9"), true, nil, "10.0.0.7", "10.0.0.7", false},
		"not one that is ready when another is asked for, which is probed": {warmed(v4("10.0.0.2-10.0.0.9")), true, nil, "10.0.0.5", "10.0.0.5", true},
	} {
		t.Run(rule, func(t *testing.T) {
			r := newRig(t, c.pool)
			change := c.change
			if change == nil {
				change = func(*v1alpha1.IPLeaseSpec) {}
			}
			r.warmLease("10.0.0.7", c.ready, change)
			request := r.pod("web-0", "u1")
			if c.request != "" {
				request.IPs = []netip.Addr{netip.MustParseAddr(c.request)}
			}
			if got := r.add(request); !slices.Equal(got, []string{c.want}) {
				t.Fatalf("got %v", got)
			}
			if r.wire.took("probe "+c.want) != c.probed {
				t.Errorf("probed: %v", !c.probed)
			}
			if l := r.lease(c.want, v1alpha1.StateBound); l.Spec.Parent != "eth1" {
				t.Errorf("parent %s", l.Spec.Parent)
			}
		})
	}
}

func TestAnAddressThatWasNotReadyIsSetAsideWhenSomebodyAnswers(t *testing.T) {
	r := newRig(t, warmed(v4("10.0.0.7")))
	r.warmLease("10.0.0.7", false)
	r.wire.answers[netip.MustParseAddr("10.0.0.7")] = stranger
	r.refused(agentapi.CodeExhausted, r.pod("web-0", "u1"))
	l := r.lease("10.0.0.7", v1alpha1.StateQuarantined)
	if l.Spec.Reason != v1alpha1.ReasonConflict || l.Spec.Conflict.MAC != stranger.String() || l.Spec.Holder != nil {
		t.Errorf("left %+v", l.Spec)
	}
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
			r := newRig(t, warmed(pool("v4", "10.0.0.0/24", c.mode, "10.0.0.2-10.0.0.9")))
			r.warmLease("10.0.0.7", true)
			r.warmLease("10.0.0.8", true)
			r.warm.doubts = map[string]segment.Doubt{"10.0.0.7": c.doubt}
			if got := r.add(r.pod("web-0", "u1")); !slices.Equal(got, []string{c.given}) {
				t.Errorf("got %v, want %s", got, c.given)
			}
			r.eventually("it is announced", func() bool { return r.wire.took("announce " + c.given) })
			if !slices.Equal(r.wire.did, c.sent) {
				t.Errorf("sent %v, want %v", r.wire.did, c.sent)
			}
			r.want(c.left...)
		})
	}
}

func TestALaterPoolsReadyAddressWaitsForTheEarlierPoolToLookFull(t *testing.T) {
	for name, c := range map[string]struct {
		total, used int64
		want        string
	}{"is free": {8, 7, "10.0.0.2"}, "is full": {8, 8, "10.1.0.7"}, "is not counted yet": {0, 0, "10.0.0.2"}} {
		t.Run("the first pool "+name, func(t *testing.T) {
			first := counted(warmed(pool("a", "10.0.0.0/24", v1alpha1.ModeEnforce, "10.0.0.2-10.0.0.9")), c.total, c.used)
			second := warmed(pool("b", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2-10.1.0.9"))
			r := newRig(t, first, second)
			r.warmLease("10.1.0.7", true, func(s *v1alpha1.IPLeaseSpec) { s.Pool = "b" })
			got := r.add(r.pod("web-0", "u1"))
			if c.used == 8 && !slices.Equal(got, []string{c.want}) || c.used != 8 && got[0][:5] != c.want[:5] {
				t.Errorf("got %v", got)
			}
		})
	}
}

// freedBeforeCounted has a lease end just before somebody counts what is coming.
type freedBeforeCounted struct {
	Leases
	free func()
}

func (f freedBeforeCounted) ComingFree(ctx context.Context, pool string) (int, error) {
	f.free()
	return f.Leases.ComingFree(ctx, pool)
}

func TestAFullPoolIsWaitedForWhileOthersKeepAddressesReady(t *testing.T) {
	other := func(s *v1alpha1.IPLeaseSpec) { s.State, s.Holder = v1alpha1.StateWarm, nil }
	t.Run("until one is given up", func(t *testing.T) {
		r := newRig(t, v4("10.0.0.2"))
		l := held("10.0.0.2", other)
		r.api.put(l)
		r.api.freed = nil
		time.AfterFunc(100*time.Millisecond, func() { r.api.drop(l) })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := r.Add(ctx, r.pod("web-0", "u1")); err != nil {
			t.Fatal(err)
		}
		r.want("10.0.0.2 Bound")
	})
	t.Run("and one that is freed before it is counted is not missed", func(t *testing.T) {
		r := newRig(t, v4("10.0.0.2"))
		l := held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone))
		r.api.put(l)
		r.api.freed = nil
		r.Leases = freedBeforeCounted{r.Leases, func() { r.api.drop(l) }}
		r.add(r.pod("web-0", "u1"))
		r.want("10.0.0.2 Bound")
	})
	t.Run("and is not called exhausted at the deadline", func(t *testing.T) {
		r := newRig(t, v4("10.0.0.2"))
		r.api.put(held("10.0.0.2", other))
		r.refused(agentapi.CodeTryAgainLater, r.pod("web-0", "u1"))
	})
	t.Run("one that is full of pods is exhausted", func(t *testing.T) {
		r := newRig(t, v4("10.0.0.2"))
		r.api.put(held("10.0.0.2"))
		r.refused(agentapi.CodeExhausted, r.pod("web-0", "u1"))
	})
}

// A living pod's record is lost, and this node, or another, has made the
// address Warm before the pod is heard. It gives way once it hears the pod.
func TestAPodWhoseAddressWasMadeWarmIsLeftAloneForAMoment(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	request := r.pod("web-0", "u1")
	r.add(request)
	r.api.drop(r.lease("10.0.0.2", v1alpha1.StateBound))
	l := r.warmLease("10.0.0.2", false)
	for _, e := range r.Journal.All() {
		r.pending.add(attachmentOf(e))
	}
	if left, err := r.resume(t.Context(), askTimeout); left != 1 || !r.speaks(request, "10.0.0.2") {
		t.Fatalf("%d entries left (%v), the pod speaks: %v", left, err, r.speaks(request, "10.0.0.2"))
	}
	// The probe of the Warm lease was answered.
	l.Spec, _ = lease.ThrowOut(time.Now(), lease.Evidence{MAC: macOf(request.NetNS).String(), Source: "probe"})(l.Spec)
	r.api.put(l)
	r.settle()
	if bound := r.lease("10.0.0.2", v1alpha1.StateBound); bound.Spec.Holder.ContainerID != request.ContainerID || !r.speaks(request, "10.0.0.2") {
		t.Errorf("bound %+v", bound.Spec)
	}
}

// Wherever the agent dies, nothing is lost: the next one ends what was bound,
// and what was not is Warm as before.
func TestABindingThatIsCutShortAnywhereLosesNothing(t *testing.T) {
	for step := range 20 {
		t.Run(fmt.Sprintf("after %d writes", step), func(t *testing.T) {
			r := newRig(t, warmed(v4("10.0.0.2-10.0.0.9")))
			l := r.warmLease("10.0.0.7", true)
			request := r.pod("web-0", "u1")
			r.death.left = step
			_, err := r.Add(t.Context(), request)
			if err == nil {
				return
			}
			r.restart()
			r.settle()
			for _, left := range r.api.leases() {
				if left.Name != l.Name || left.Spec.State != v1alpha1.StateWarm {
					t.Errorf("left %s %+v", left.Name, left.Spec)
				}
			}
			if slots := r.kernel.speakers(bpf.Key{Segment: parentIndex, Addr: netip.MustParseAddr("10.0.0.7")}); len(slots) > 0 {
				t.Errorf("slot %v speaks", slots)
			}
			if e, ok := r.Journal.Get(request.ContainerID, "eth0"); ok && e.Phase != journal.Releasing {
				t.Errorf("journalled %+v", e)
			}
		})
	}
}
