// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

func TestADDGivesAnAddressInTheOrderOfR4(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	var counted []string
	r.Waits.OnStep = func(step string) { counted = append(counted, step) }
	web := r.Pod("web", "u1")
	r.Death.Did = nil
	r.Gets(web, "10.0.0.2")
	// The guard comes beside the create, and before anything that it is for.
	did := slices.DeleteFunc(slices.Clone(r.Death.Did), func(s string) bool { return s == "guard" })
	want := []string{"journal Intent", "create 10.0.0.2", "install 10.0.0.2", "install 10.0.0.2", "journal Bound"}
	if guard := slices.Index(r.Death.Did, "guard"); !slices.Equal(did, want) || guard != 1 && guard != 2 {
		t.Errorf("effects %v, want %v and the guard beside the create", r.Death.Did, want)
	}
	check.List(t, r.Wire.Did(), []string{"probe 10.0.0.2", "claim 10.0.0.2", "announce 10.0.0.2"}, "frames")
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	h := l.Spec.Holder
	check.That(t, l.Spec.NodeName == fakenode.ThisNode && l.Spec.Session == fakenode.ThisSession && h.ContainerID == "c-u1" &&
		h.MAC == fakenode.MacOf(web.NetNS).String(), "lease %+v of %+v", l.Spec, h)
	check.That(t, r.Speaks(web, "10.0.0.2"), "the pod is mute")
	all := []string{"pod", "interface", "pools", "candidate", "route", "release", "intent", "lease", "proof", "claim", "confirm", "gateway", "record"}
	check.List(t, counted, all, "steps") // docs/metrics.md has them
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
			r := fakenode.New(t, fakenode.Pool("v4", "10.0.0.0/24", test.mode, "10.0.0.2-10.0.0.3"))
			r.Wire.Answers[netip.MustParseAddr("10.0.0.2")] = fakenode.Stranger
			web := r.Pod("web", "u1")
			got := r.MustAdd(web)
			r.Want(test.leases...)
			check.List(t, r.Wire.Did(), test.frames, "frames")
			check.That(t, r.Speaks(web, got[0]), "the pod is mute for %v", got)
			c := r.API.Leases()["10.0.0.2"].Spec.Conflict
			recorded := c != nil && c.MAC == fakenode.Stranger.String()
			check.That(t, recorded == (test.mode != v1alpha1.ModeOff), "conflict on the lease: %v", c)
		})
	}
}

func TestAnAddressThatWasSetAsideDoesNotKillTheADDThatGoesOn(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	r.Wire.Answers[fakenode.Two] = fakenode.Stranger
	verified := make(chan struct{})
	r.API.Before = func(verb, name string) error {
		if verb == "create" && name == "10.0.0.3" {
			// The verifier of this node is at it before the ADD goes on.
			go func() {
				_, dead, err := r.Releaser.KillHolder(context.Background(), "10.0.0.2")
				check.That(t, !dead && err == nil, "dead %v, %v", dead, err)
				close(verified)
			}()
		}
		return nil
	}
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	<-verified
	check.That(t, r.Speaks(web, "10.0.0.3") && !r.Speaks(web, "10.0.0.2"), "the pod is mute, or may speak for the address that was set aside")
}

func TestALivingPodWithoutItsLeaseIsNotMutedByItsOwnNode(t *testing.T) {
	for _, hint := range []bool{true, false} {
		r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.3"))
		r.API.Drop(fakenode.Held("10.0.0.2"))
		request := r.Pod("new", "u2")
		if !hint {
			request.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
			r.Refused(agentapi.CodeAddressRefused, request)
			r.Want("10.0.0.2 Quarantined")
		} else if got := r.MustAdd(request); got[0] != "10.0.0.3" {
			t.Fatalf("got %v", got)
		}
		check.That(t, r.Speaks(old, "10.0.0.2"), "the living pod is mute")
		r.Settle()
		l := r.Lease("10.0.0.2", v1alpha1.StateBound)
		check.That(t, l.Spec.Holder.Pod == old.Pod.Name && r.Speaks(old, "10.0.0.2"), "lease of %v", l.Spec.Holder)
	}
}

func TestEveryAddressInUse(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	r.API.Put(fakenode.Held("10.0.0.2"))
	r.API.Put(fakenode.Held("10.0.0.3"))
	check.Says(t, r.Refused(agentapi.CodeExhausted, r.Pod("web", "u1")), "fllease")
	r.Want("10.0.0.2 Bound", "10.0.0.3 Bound")
	check.None(t, r.Attachments.All(), "journal")
}

func TestASightedAddressLeavesNoIntentOfAnothersLease(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	r.API.Put(fakenode.Held("10.0.0.2"))
	r.Acquirer.Sighted = func(_ int, addr netip.Addr) bool { return addr == fakenode.Key("10.0.0.3").Addr }
	web := r.Pod("web", "u1")
	r.Gets(web, "10.0.0.3")
	e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
	check.That(t, len(e.Addresses) == 1, "the journal holds %v", e.Addresses)
}

func TestBothFamiliesOrNone(t *testing.T) {
	r := fakenode.New(t, fakenode.Dual()...)
	web := r.Pod("web", "u1")
	r.Gets(web, "10.0.0.2", "fd00::2")
	r.MustDel(web)
	r.End(web)

	r = fakenode.New(t, fakenode.Dual()...)
	r.API.Put(fakenode.Held("fd00::2"))
	web = r.Pod("web", "u1")
	r.Refused(agentapi.CodeExhausted, web)
	r.Want("fd00-0000-0000-0000-0000-0000-0000-0002 Bound")
	check.None(t, r.Attachments.All(), "journal")
}

func TestAnADDWhosePluginLeavesIsUndone(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	ctx, leave := context.WithCancel(t.Context())
	r.Wire.OnClaim = func(segment.Claim) { leave() }
	check.Is(t, check.Err(r.Add(ctx, r.Pod("web", "u1"))), context.Canceled, "got")
	r.Want()
	check.None(t, r.Attachments.All(), "journal")
}

func TestR5NoADDAnswersWhileTheAPIServerIsAway(t *testing.T) {
	for name, owner := range map[string]func(*corev1.Pod){"": func(*corev1.Pod) {}, "of a StatefulSet": fakenode.OfStatefulSet} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			web := r.Pod("web", "u1", owner)
			r.Wire.OnClaim = func(segment.Claim) { t.Error("an address was claimed that no API server has given") }
			// Everything that the cache holds is there; the truth is not.
			r.API.Before = func(string, string) error { return &fakenode.NetError{} }
			r.API.Unlisted = &fakenode.NetError{}
			check.Says(t, r.Refused(agentapi.CodeTryAgainLater, web), "API server is unreachable")
			check.That(t, !r.Speaks(web, "10.0.0.2"), "the pod speaks")
			r.API.Before = nil
			r.Settle()
			r.Want()
		})
	}
}

// A create whose answer is lost has happened all the same.
func TestACreateWithoutAnAnswerLeaksNothing(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.API.Before = func(verb, _ string) error {
		if verb == "create" {
			l := fakenode.Held("10.0.0.2", func(s *v1alpha1.IPLeaseSpec) {
				s.NodeName, s.Session = fakenode.ThisNode, fakenode.ThisSession
				s.Holder.ContainerID, s.Holder.Pod, s.Holder.PodUID = web.ContainerID, "web", "u1"
			})
			r.API.Store(fakenode.KeyFor(l, client.ObjectKey{Name: l.Name}), l)
			r.API.Away = true
			return &fakenode.NetError{}
		}
		return nil
	}
	r.Refused(agentapi.CodeTryAgainLater, web)
	r.API.Before = nil
	r.API.SetAway(false)
	r.Want("10.0.0.2 Bound")
	r.Settle()
	r.Want()
}

func TestR10AnAddressThatIsFencedAfterItsClaimIsNotAnswered(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.Wire.OnClaim = func(c segment.Claim) { r.Kernel.Claimed(fakenode.Key("10.0.0.2"), c.Token+1) }
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web", "u1"))
	r.Want()
	check.That(t, !r.Wire.Took("announce 10.0.0.2"), "a fenced address was announced")
}

// Without a claim key an ADD relies on its probe, and takes nothing from a holder on record.
func TestWithoutAClaimKeyADDsDetectAndDoNotFence(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	r.Wire.NoKey = true
	r.Wire.Answers[fakenode.Two] = fakenode.Stranger
	web := r.Pod("web", "u1")
	r.Gets(web, "10.0.0.3")
	check.That(t, r.Speaks(web, "10.0.0.3"), "the pod is mute")
	r.Want("10.0.0.2 Quarantined", "10.0.0.3 Bound")
	check.List(t, r.Wire.Did(), []string{"probe 10.0.0.2", "probe 10.0.0.3", "announce 10.0.0.3"}, "frames")

	r = fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.Wire.NoKey = true
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)))
	r.Wire.Verdicts[fakenode.Two] = segment.Silent
	r.Refused(agentapi.CodeTryAgainLater, r.Pod("web-0", "u1", fakenode.OfStatefulSet))
}

func TestAnADDRepeatedOnTheSameInterfaceIsNotMutedByItsFirst(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	first := r.SlotOf(web)
	got := r.MustAdd(web)
	r.Want(got[0] + " Bound")
	attached, _ := r.Guards.Kernel.Guards.Attached(first)
	check.That(t, !attached, "the dead guard of the first ADD is still on the interface")
	check.That(t, r.Speaks(web, got[0]), "the pod is mute")
}

func TestAPodThatIsNotThereIsTriedAgainLater(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	web.Pod.UID = "u0"
	r.Refused(agentapi.CodeTryAgainLater, web)
}
