// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// In an outage of the API server, the next sandbox of a pod gets the addresses of the older one: it is mute
// by then, and its DEL frees nothing. The leases are written once the server answers.
func TestWhileTheAPIServerIsAwayTheNextSandboxOfAPodHasItsAddressesAgain(t *testing.T) {
	for name, outage := range map[string]func(r *fakenode.Node, old, young agentapi.AddRequest) []string{
		"ADD": func(r *fakenode.Node, _, young agentapi.AddRequest) []string { return r.MustAdd(young) },
		"DEL, then ADD": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
			r.SandboxDies(old)
			return r.MustAdd(young)
		},
		"DEL, a restart of the agent, then ADD": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
			r.SandboxDies(old)
			r.Restart()
			return r.MustAdd(young)
		},
		"a restart of the agent, then ADD and DEL": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
			r.Restart()
			got := r.MustAdd(young)
			r.SandboxDies(old)
			return got
		},
		"ADD, DEL, a restart of the agent": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
			got := r.MustAdd(young)
			r.SandboxDies(old)
			r.Restart()
			return got
		},
		"two sandboxes, one after the other": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
			between := next(old, "c-between")
			r.MustAdd(between)
			r.SandboxDies(old)
			got := r.MustAdd(young)
			r.SandboxDies(between)
			return got
		},
		"two sandboxes, and no DEL before the end of the outage": func(r *fakenode.Node, old, young agentapi.AddRequest) []string {
			r.MustAdd(next(old, "c-between"))
			return r.MustAdd(young)
		},
	} {
		for kind, change := range map[string]func(*agentapi.AddRequest, *fakenode.Node){
			"a pod of a Deployment":  func(*agentapi.AddRequest, *fakenode.Node) {},
			"a pod of a StatefulSet": func(_ *agentapi.AddRequest, r *fakenode.Node) { r.API.ChangePod("web", fakenode.OfStatefulSet) },
		} {
			t.Run(name+", of "+kind, func(t *testing.T) {
				r := fakenode.New(t, fakenode.Dual()...)
				old := r.Pod("web", "u1")
				change(&old, r)
				before, young := r.MustAdd(old), next(old, "c2")
				slot := r.SlotOf(old)
				r.API.SetAway(true)
				check.List(t, outage(r, old, young), before, "has")
				check.That(t, r.Kernel.IsDead(slot), "the older sandbox may speak")
				check.That(t, r.Speaks(young, before[0]), "the next sandbox is mute")
				r.API.SetAway(false)
				r.Settle()
				r.HoldsWhatTheJournalSays(young)
				l := r.Lease(before[0], v1alpha1.StateBound)
				check.Equal(t, l.Spec.Holder.ContainerID, "c2", "the lease names")
				r.SandboxDies(old)
				r.Settle()
				r.HoldsWhatTheJournalSays(young)
				e, _ := r.Attachments.Get("c2", young.Interface)
				check.That(t, !e.HasMoved() && len(r.Attachments.All()) == 1, "journal %+v", r.Attachments.All())
				r.MustDel(young)
				r.Settle()
				check.None(t, r.Attachments.All(), "journal")
			})
		}
	}
}

// Without the API server, a node gives an address only if it knows by itself that the address is the pod's.
func TestWhileTheAPIServerIsAwayNobodyElseGetsAnAddress(t *testing.T) {
	for name, row := range map[string]struct {
		// change happens before the ADD of the next sandbox, which it may change.
		change func(*fakenode.Node, *agentapi.AddRequest)
		says   string
	}{
		"another pod":                 {func(r *fakenode.Node, young *agentapi.AddRequest) { *young = r.Pod("other", "u2") }, "has no address on this node that it could keep"},
		"another pod of the name":     {func(_ *fakenode.Node, young *agentapi.AddRequest) { young.Pod.UID = "u2" }, "has no address on this node"},
		"a runtime that tells no UID": {func(_ *fakenode.Node, young *agentapi.AddRequest) { young.Pod.UID = "" }, "has no address on this node"},
		"another interface":           {func(_ *fakenode.Node, young *agentapi.AddRequest) { young.Interface = "net1" }, "has no address on this node"},
		"a claim of a newer holder":   {func(r *fakenode.Node, _ *agentapi.AddRequest) { r.Kernel.Claimed(fakenode.Key("10.0.0.2"), 9999) }, "a newer claim for it was heard"},
		"a claim of a newer holder that is heard in answer": {func(r *fakenode.Node, _ *agentapi.AddRequest) {
			r.Wire.OnClaim = func(c segment.Claim) { r.Kernel.Claimed(fakenode.Key("10.0.0.2"), c.Token+1) }
		}, "fenced"},
		"a reboot of the node": {func(r *fakenode.Node, _ *agentapi.AddRequest) {
			r.Life = "node-1/boot-2"
			r.Restart()
		}, "the node has started anew"},
		"a lease in the kernel with another token": {func(r *fakenode.Node, _ *agentapi.AddRequest) {
			l, _, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
			l.Token++
			check.OK(r.T, r.Kernel.Install(fakenode.Key("10.0.0.2"), l))
		}, "the kernel of this node does not hold it"},
		"a release whose answer was lost": {func(r *fakenode.Node, young *agentapi.AddRequest) {
			r.API.SetAway(false)
			r.API.Breaks("update")
			old := *young
			old.ContainerID, old.NetNS = "c1", "/netns/c1"
			r.SandboxDies(old)
			r.API.Before = nil
			r.API.SetAway(true)
		}, "a write that frees it may have begun"},
		"a release after the DEL whose answer was lost": {func(r *fakenode.Node, young *agentapi.AddRequest) {
			old := *young
			old.ContainerID, old.NetNS = "c1", "/netns/c1"
			r.SandboxDies(old)
			r.API.SetAway(false)
			r.API.Breaks("update")
			left, err := r.Recovery.Resume(r.T.Context(), attachment.AskTimeout)
			check.That(r.T, left == 1 && err != nil, "left %d, %v", left, err)
			r.API.Before = nil
			r.API.SetAway(true)
		}, "a write that frees it may have begun"},
		"a verification on this node": {func(r *fakenode.Node, young *agentapi.AddRequest) {
			r.API.SetAway(false)
			l := r.API.Leases()["10.0.0.2"]
			l.Spec.Previous = &v1alpha1.PreviousHolder{Node: fakenode.ThisNode, Session: l.Spec.Session, PodUID: "u1", Guarded: true}
			l.Spec.State, l.Spec.Reason = v1alpha1.StateQuarantined, v1alpha1.ReasonPodGone
			r.Replace(l)
			_, dead, err := r.Releaser.KillHolder(r.T.Context(), "10.0.0.2")
			check.That(r.T, dead && err == nil, "dead %v, %v", dead, err)
			r.API.SetAway(true)
			old := *young
			old.ContainerID, old.NetNS = "c1", "/netns/c1"
			r.SandboxDies(old)
			r.Restart() // nothing but the journal knows that the slot was not killed by the DEL
		}, "it was taken from the older sandbox"},
		"an entry of an earlier version": {func(r *fakenode.Node, _ *agentapi.AddRequest) {
			e := *r.Attachments.All()[0]
			e.Addresses = append([]attachment.Address(nil), e.Addresses...)
			e.Addresses[0].Given = nil
			check.OK(r.T, r.Attachments.Put(e))
		}, "given by an earlier version of the agent"},
		"an interface on another parent": {func(r *fakenode.Node, _ *agentapi.AddRequest) {
			e := *r.Attachments.All()[0]
			e.Parent, e.ParentIndex = "eth2", fakenode.ParentIndex+1
			check.OK(r.T, r.Attachments.Put(e))
		}, "another parent than eth2"},
		"an entry that is mute": {func(r *fakenode.Node, _ *agentapi.AddRequest) {
			e := *r.Attachments.All()[0]
			e.Mute = true
			check.OK(r.T, r.Attachments.Put(e))
		}, "a newer claim for it was heard"},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			old := r.Pod("web", "u1")
			old.ContainerID, old.NetNS = "c1", "/netns/c1"
			r.MustAdd(old)
			young := next(old, "c2")
			r.API.SetAway(true)
			row.change(r, &young)
			check.Says(t, r.Refused(agentapi.CodeTryAgainLater, young), row.says)
			check.That(t, !r.Speaks(young, "10.0.0.2"), "the next sandbox speaks")
			e, ok := r.Attachments.Get(young.ContainerID, young.Interface)
			check.That(t, !ok, "journal %+v", e)
		})
	}
}

// An entry of an earlier build lacks what an outage needs. The next ADD with the API server completes it.
func TestAnEntryOfAnEarlierBuildIsCompleteAfterTheNextADD(t *testing.T) {
	r := fakenode.New(t, fakenode.Dual()...)
	old := r.Pod("web", "u1")
	before := r.MustAdd(old)
	e := *r.Attachments.All()[0]
	e.Index, e.Addresses = 0, slices.Clone(e.Addresses)
	for i := range e.Addresses {
		e.Addresses[i].Given = nil
	}
	check.OK(t, r.Attachments.Put(e))
	r.Restart()
	r.Settle()
	r.HoldsWhatTheJournalSays(old)
	r.API.SetAway(true)
	young := next(old, "c2")
	check.Says(t, r.Refused(agentapi.CodeTryAgainLater, young), "given by an earlier version of the agent")
	check.That(t, r.Speaks(old, before[0]), "the older sandbox is mute, and nobody has its address")
	r.API.SetAway(false)
	check.List(t, r.MustAdd(young), before, "with the API server it has")
	r.SandboxDies(old)
	r.Settle()
	r.API.SetAway(true)
	check.List(t, r.MustAdd(next(old, "c3")), before, "without it, the next one has")
}

// What others did to the lease in the outage counts: the pod that has moved never writes over it.
func TestAMoveGivesWayToWhatHappenedToTheLease(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*fakenode.Node)
		// want has the leases afterwards, and speaks whether the pod may use the address.
		want   []string
		speaks bool
	}{
		"quarantined": {func(r *fakenode.Node) {
			r.Replace(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
		}, []string{"10.0.0.2 Quarantined"}, false},
		"bound on another node": {func(r *fakenode.Node) { r.Replace(fakenode.Held("10.0.0.2")) }, []string{"10.0.0.2 Bound"}, false},
		"deleted by a person":   {func(r *fakenode.Node) { r.API.Drop(fakenode.Held("10.0.0.2")) }, []string{"10.0.0.2 Bound"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			r.API.SetAway(true)
			young := next(old, "c2")
			r.MustAdd(young)
			row.change(r)
			r.API.SetAway(false)
			r.Settle()
			r.Want(row.want...)
			check.Equal(t, r.Speaks(young, "10.0.0.2"), row.speaks, "the pod speaks")
			r.SandboxDies(old)
			r.Settle()
			r.Want(row.want...)
		})
	}
}

// A DEL before the record of a move frees the lease, although that names an older sandbox.
func TestADELOfASandboxThatHasMovedFreesItsAddress(t *testing.T) {
	for name, between := range map[string]func(*fakenode.Node){"": func(*fakenode.Node) {}, "after a restart": (*fakenode.Node).Restart} {
		t.Run(name, func(t *testing.T) {
			r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			r.API.SetAway(true)
			young := next(old, "c2")
			r.MustAdd(young)
			r.SandboxDies(old)
			r.MustDel(young)
			between(r)
			r.API.SetAway(false)
			r.Settle()
			r.Want()
			check.None(t, r.Attachments.All(), "journal")
		})
	}
}

// An ADD of a sandbox that has a newer lease by its own write is not undone by the sandbox that had moved.
func TestASandboxAfterTheOutageKeepsItsAddressWhenTheMovedOneEnds(t *testing.T) {
	r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.API.SetAway(true)
	moved := next(old, "c2")
	r.MustAdd(moved)
	r.API.SetAway(false)
	young := next(old, "c3")
	r.Gets(young, "10.0.0.2")
	r.Recovery.LookAgain()
	_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout) // the DELs are still to come
	check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.ContainerID, "c3", "the lease names")
	r.SandboxDies(old)
	r.SandboxDies(moved)
	r.Settle()
	r.HoldsWhatTheJournalSays(young)
	check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.ContainerID, "c3", "the lease names")
}

// unwritable is a disk that takes no entry of a phase.
type unwritable struct {
	attachment.Disk
	phase attachment.Phase
}

func (d unwritable) Replace(path string, e *attachment.Entry) error {
	if e.Phase == d.phase {
		return syscall.ENOSPC
	}
	return d.Disk.Replace(path, e)
}

// A move that fails, or whose agent dies, begins again with the next sandbox: the kernel has gone on hearing
// claims meanwhile, although the interface of the sandbox that failed is gone.
func TestAMoveThatFailsBeginsAgain(t *testing.T) {
	for name, fail := range map[string]func(*fakenode.Node, agentapi.AddRequest){
		"on a full disk": func(r *fakenode.Node, failed agentapi.AddRequest) {
			disk := r.Attachments.Disk
			r.Attachments.Disk = unwritable{disk, attachment.Bound}
			r.Refused(agentapi.CodeIOFailure, failed)
			r.Attachments.Disk = disk
		},
		"by the end of the agent": func(r *fakenode.Node, failed agentapi.AddRequest) {
			r.Death.Before = "journal Bound"
			check.That(r.T, fakenode.TryAdd(r, failed) != nil, "it succeeds")
			r.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
			r.API.SetAway(true)
			failed := next(old, "c2")
			fail(r, failed)
			check.OK(t, r.Del(t.Context(), fakenode.Del(failed)))
			r.End(failed)
			r.Gets(next(old, "c3"), "10.0.0.2")
			r.API.SetAway(false)
			r.Settle()
			r.HoldsWhatTheJournalSays(next(old, "c3"))
		})
	}
}

// If one of two addresses has been freed, the other does not move alone.
func TestAnInterfaceMovesWithAllItsAddressesOrNone(t *testing.T) {
	r := fakenode.New(t, fakenode.Dual()...)
	old := r.Pod("web", "u1")
	r.MustAdd(old)
	r.API.SetAway(true)
	r.SandboxDies(old)
	r.API.SetAway(false)
	r.API.Before = func(verb, name string) error {
		if verb == "get" && name != "10.0.0.2" {
			return &fakenode.NetError{}
		}
		return nil
	}
	_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
	r.API.Before = nil
	r.Lease("10.0.0.2", v1alpha1.StateRetained)
	r.API.SetAway(true)
	check.Says(t, r.Refused(agentapi.CodeTryAgainLater, next(old, "c2")), "a write that frees it may have begun")
}

// The clock is set back between two sandboxes: the one that had moved takes and frees nothing of the other.
func TestAClockThatIsSetBackTakesNoAddressFromTheNextSandbox(t *testing.T) {
	for _, dies := range []bool{false, true} {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("the moved one dies: %v, the API server is back before the ADD: %v", dies, back), func(t *testing.T) {
				r, old := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
				r.API.SetAway(true)
				moved, young := next(old, "c2"), next(old, "c3")
				r.MustAdd(moved)
				r.SandboxDies(old)
				if dies {
					r.SandboxDies(moved)
				}
				r.Skip(-time.Hour)
				r.API.SetAway(!back)
				r.Gets(young, "10.0.0.2")
				r.Skip(2 * time.Hour)
				r.API.SetAway(false)
				r.Settle()
				r.HoldsWhatTheJournalSays(young)
				check.Equal(t, r.Lease("10.0.0.2", v1alpha1.StateBound).Spec.Holder.ContainerID, "c3", "the lease names")
			})
		}
	}
}
