package holder

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

func TestADDGivesAnAddressInTheOrderOfR4(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.death.did = nil
	if got := r.add(web); !slices.Equal(got, []string{"10.0.0.2"}) {
		t.Fatalf("got %v", got)
	}
	// The guard comes beside the create, and before anything that it is for.
	did := slices.DeleteFunc(slices.Clone(r.death.did), func(s string) bool { return s == "guard" })
	want := []string{"journal Intent", "create 10.0.0.2", "install 10.0.0.2", "journal Bound"}
	if guard := slices.Index(r.death.did, "guard"); !slices.Equal(did, want) || guard != 1 && guard != 2 {
		t.Errorf("effects %v, want %v and the guard beside the create", r.death.did, want)
	}
	if want := []string{"probe 10.0.0.2", "claim 10.0.0.2", "announce 10.0.0.2"}; !slices.Equal(r.wire.did, want) {
		t.Errorf("frames %v, want %v", r.wire.did, want)
	}
	l := r.lease("10.0.0.2", v1alpha1.StateBound)
	if h := l.Spec.Holder; l.Spec.NodeName != thisNode || l.Spec.Session != thisSession || h.ContainerID != "c-u1" || h.MAC != macOf(web.NetNS).String() {
		t.Errorf("lease %+v of %+v", l.Spec, h)
	}
	if !r.speaks(web, "10.0.0.2") {
		t.Error("the pod is mute")
	}
}

func TestAConflictAtADDByTheModeOfThePool(t *testing.T) {
	for _, test := range []struct {
		mode   v1alpha1.ConflictMode
		leases []string
		frames []string
	}{
		{v1alpha1.ModeEnforce, []string{"10.0.0.2 Quarantined", "10.0.0.3 Bound"},
			[]string{"probe 10.0.0.2", "probe 10.0.0.3", "claim 10.0.0.3", "announce 10.0.0.3"}},
		{v1alpha1.ModeObserve, []string{"10.0.0.2 Bound"}, []string{"probe 10.0.0.2", "announce 10.0.0.2"}},
		{v1alpha1.ModeOff, []string{"10.0.0.2 Bound"}, []string{"announce 10.0.0.2"}},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			r := newRig(t, pool("v4", "10.0.0.0/24", test.mode, "10.0.0.2-10.0.0.3"))
			r.wire.answers[netip.MustParseAddr("10.0.0.2")] = stranger
			web := r.pod("web", "u1")
			got := r.add(web)
			r.want(test.leases...)
			if !slices.Equal(r.wire.did, test.frames) {
				t.Errorf("frames %v, want %v", r.wire.did, test.frames)
			}
			if !r.speaks(web, got[0]) {
				t.Errorf("the pod is mute for %v", got)
			}
			c := r.api.leases()["10.0.0.2"].Spec.Conflict
			if recorded := c != nil && c.MAC == stranger.String(); recorded != (test.mode != v1alpha1.ModeOff) {
				t.Errorf("conflict on the lease: %v", c)
			}
		})
	}
}

func TestAnAddressThatWasSetAsideDoesNotKillTheADDThatGoesOn(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.3"))
	r.wire.answers[two] = stranger
	verified := make(chan struct{})
	r.api.before = func(verb, name string) error {
		if verb == "create" && name == "10.0.0.3" {
			// The verifier of this node is at it before the ADD goes on.
			go func() {
				if _, dead, err := r.KillHolder(context.Background(), "10.0.0.2"); dead || err != nil {
					t.Errorf("dead %v, %v", dead, err)
				}
				close(verified)
			}()
		}
		return nil
	}
	web := r.pod("web", "u1")
	r.add(web)
	<-verified
	if !r.speaks(web, "10.0.0.3") || r.speaks(web, "10.0.0.2") {
		t.Error("the pod is mute, or may speak for the address that was set aside")
	}
}

func TestALivingPodWhoseLeaseWasDeletedIsNotMutedByAnADDOfItsOwnNode(t *testing.T) {
	for _, hint := range []bool{true, false} {
		r := newRig(t, v4("10.0.0.2-10.0.0.3"))
		old := r.pod("old", "u1")
		r.add(old)
		r.api.drop(held("10.0.0.2"))
		request := r.pod("new", "u2")
		if !hint {
			request.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
			r.refused(agentapi.CodeAddressRefused, request)
			r.want("10.0.0.2 Quarantined")
		} else if got := r.add(request); got[0] != "10.0.0.3" {
			t.Fatalf("got %v", got)
		}
		if !r.speaks(old, "10.0.0.2") {
			t.Error("the living pod is mute")
		}
		r.settle()
		l := r.lease("10.0.0.2", v1alpha1.StateBound)
		if l.Spec.Holder.Pod != "old" || !r.speaks(old, "10.0.0.2") {
			t.Errorf("lease of %v", l.Spec.Holder)
		}
	}
}

func TestEveryAddressInUse(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.3"))
	r.api.put(held("10.0.0.2"))
	r.api.put(held("10.0.0.3"))
	web := r.pod("web", "u1")
	if text := r.refused(agentapi.CodeExhausted, web); !strings.Contains(text, "fllease") {
		t.Errorf("no advice: %s", text)
	}
	r.want("10.0.0.2 Bound", "10.0.0.3 Bound")
	if len(r.Journal.All()) != 0 {
		t.Errorf("journal %v", r.Journal.All())
	}
}

func TestAnAddressThatWasOnlySightedDoesNotLeaveAnIntentOfAnothersLease(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.3"))
	r.api.put(held("10.0.0.2"))
	r.Sighted = func(_ int, addr netip.Addr) bool { return addr == key("10.0.0.3").Addr }
	web := r.pod("web", "u1")
	if got := r.add(web); got[0] != "10.0.0.3" {
		t.Fatalf("got %v", got)
	}
	e, _ := r.Journal.Get(web.ContainerID, web.Interface)
	if len(e.Addresses) != 1 {
		t.Errorf("the journal holds %v", e.Addresses)
	}
}

func dual() []*v1alpha1.IPPool {
	return []*v1alpha1.IPPool{v4("10.0.0.2"), pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2")}
}

func TestBothFamiliesOrNone(t *testing.T) {
	r := newRig(t, dual()...)
	web := r.pod("web", "u1")
	if got := r.add(web); !slices.Equal(got, []string{"10.0.0.2", "fd00::2"}) {
		t.Fatalf("got %v", got)
	}
	r.del(web)
	r.end(web)

	r = newRig(t, dual()...)
	r.api.put(held("fd00::2"))
	web = r.pod("web", "u1")
	r.refused(agentapi.CodeExhausted, web)
	r.want("fd00-0000-0000-0000-0000-0000-0000-0002 Bound")
	if len(r.Journal.All()) != 0 {
		t.Errorf("journal %v", r.Journal.All())
	}
}

func TestAnADDWhosePluginLeavesIsUndone(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	ctx, leave := context.WithCancel(t.Context())
	r.wire.onClaim = func(segment.Claim) { leave() }
	if _, err := r.Add(ctx, r.pod("web", "u1")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r.want()
	if len(r.Journal.All()) != 0 {
		t.Errorf("journal %v", r.Journal.All())
	}
}

func TestR5NoADDAnswersWhileTheAPIServerIsAway(t *testing.T) {
	for name, owner := range map[string]func(*corev1.Pod){"": func(*corev1.Pod) {}, "of a StatefulSet": ofStatefulSet} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			web := r.pod("web", "u1", owner)
			r.wire.onClaim = func(segment.Claim) { t.Error("an address was claimed that no API server has given") }
			// Everything that the cache holds is there; the truth is not.
			r.api.before = func(string, string) error { return &netError{} }
			r.Leases = awayLeases{r.Leases}
			if text := r.refused(agentapi.CodeTryAgainLater, web); !strings.Contains(text, "API server is away") {
				t.Error(text)
			}
			if r.speaks(web, "10.0.0.2") {
				t.Error("the pod speaks")
			}
			r.api.before = nil
			r.settle()
			r.want()
		})
	}
}

// A create whose answer is lost has happened all the same.
func TestACreateWithoutAnAnswerLeaksNothing(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.api.before = func(verb, _ string) error {
		if verb == "create" {
			l := held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
				s.NodeName, s.Session = thisNode, thisSession
				s.Holder.ContainerID, s.Holder.Pod, s.Holder.PodUID = web.ContainerID, "web", "u1"
			})
			r.api.store(keyFor(l, clientKey(l.Name)), l)
			r.api.away = true
			return &netError{}
		}
		return nil
	}
	r.refused(agentapi.CodeTryAgainLater, web)
	r.api.before = nil
	r.api.setAway(false)
	r.want("10.0.0.2 Bound")
	r.settle()
	r.want()
}

func TestR10AnAddressThatIsFencedAfterItsClaimIsNotAnswered(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.wire.onClaim = func(c segment.Claim) { r.kernel.claimed(key("10.0.0.2"), c.Token+1) }
	web := r.pod("web", "u1")
	r.refused(agentapi.CodeTryAgainLater, web)
	r.want()
	if r.wire.took("announce 10.0.0.2") {
		t.Error("a fenced address was announced")
	}
}

func TestAnADDRepeatedOnTheSameInterfaceIsNotMutedByItsFirst(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.3"))
	web := r.pod("web", "u1")
	r.add(web)
	first := r.slotOf(web)
	got := r.add(web)
	r.want(got[0] + " Bound")
	if attached, _ := r.Kernel.GuardAttached(first); attached {
		t.Error("the dead guard of the first ADD is still on the interface")
	}
	if !r.speaks(web, got[0]) {
		t.Error("the pod is mute")
	}
}

func TestAPodThatIsNotThereIsTriedAgainLater(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	web.Pod.UID = "u0"
	r.refused(agentapi.CodeTryAgainLater, web)
}
