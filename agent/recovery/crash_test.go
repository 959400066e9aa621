// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// story is one call that an agent may die in.
type story struct {
	name  string
	setup func(*fakenode.Node) agentapi.AddRequest
	call  func(*fakenode.Node, agentapi.AddRequest) error
	// ends are the leases that may be there after everything was released.
	ends [][]string
}

// remove is the DEL of a pod that is being deleted.
func remove(r *fakenode.Node, request agentapi.AddRequest) error {
	r.Terminate(request)
	return die(r, request)
}

// die is the DEL of a sandbox that has died.
func die(r *fakenode.Node, request agentapi.AddRequest) error {
	return r.Del(r.T.Context(), fakenode.Del(request))
}

func stories() []story {
	free := [][]string{{}}
	// A dead agent does not know the pod's end. The controller ends these leases.
	kept := [][]string{{}, {"10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained"},
		{"10.0.0.2 Retained"}, {"fd00-0000-0000-0000-0000-0000-0000-0002 Retained"}}
	again := func(r *fakenode.Node) (older, newer agentapi.AddRequest) {
		older = r.Pod("web", "u1")
		r.MustAdd(older)
		newer = older
		newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
		return older, newer
	}
	return []story{
		{"ADD", func(r *fakenode.Node) agentapi.AddRequest { return r.Pod("web", "u1") }, fakenode.TryAdd, free},
		{"ADD with a conflict", func(r *fakenode.Node) agentapi.AddRequest {
			r.Wire.Answers[fakenode.Two] = fakenode.Stranger
			return r.Pod("web", "u1")
		}, fakenode.TryAdd, [][]string{{}, {"10.0.0.2 Quarantined"}, {"10.0.0.2 Quarantined", "fd00-0000-0000-0000-0000-0000-0000-0002 Quarantined"}}},
		{"ADD for a newer sandbox", func(r *fakenode.Node) agentapi.AddRequest {
			_, newer := again(r)
			return newer
		}, fakenode.TryAdd, kept},
		{"ADD after the DEL of an older sandbox", func(r *fakenode.Node) agentapi.AddRequest {
			older, newer := again(r)
			r.SandboxDies(older)
			return newer
		}, fakenode.TryAdd, kept},
		{"ADD of the next sandbox while the API server is away", func(r *fakenode.Node) agentapi.AddRequest {
			_, newer := again(r)
			r.API.SetAway(true)
			return newer
		}, fakenode.TryAdd, kept},
		{"ADD after a DEL while the API server is away", func(r *fakenode.Node) agentapi.AddRequest {
			older, newer := again(r)
			r.API.SetAway(true)
			r.SandboxDies(older)
			return newer
		}, fakenode.TryAdd, kept},
		{"record of a move once the API server is back", func(r *fakenode.Node) agentapi.AddRequest {
			_, newer := again(r)
			r.API.SetAway(true)
			r.MustAdd(newer)
			r.API.SetAway(false)
			return newer
		}, func(r *fakenode.Node, _ agentapi.AddRequest) error {
			_, err := r.Recovery.Resume(r.T.Context(), attachment.AskTimeout)
			return err
		}, kept},
		{"DEL of a sandbox whose move is not recorded", func(r *fakenode.Node) agentapi.AddRequest {
			_, newer := again(r)
			r.API.SetAway(true)
			r.MustAdd(newer)
			return newer
		}, die, kept},
		{"DEL of a sandbox that has died", func(r *fakenode.Node) agentapi.AddRequest {
			older, _ := again(r)
			return older
		}, die, kept},
		{"ADD that takes a retained address over", func(r *fakenode.Node) agentapi.AddRequest {
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
			return r.Pod("web-0", "u1", fakenode.OfStatefulSet)
		}, fakenode.TryAdd, [][]string{{"10.0.0.2 Retained"}, {"10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained"}}},
		{"ADD that takes a quarantined address over", func(r *fakenode.Node) agentapi.AddRequest {
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodGone)))
			r.Wire.Verdicts[fakenode.Two] = segment.Silent
			return r.Pod("web-0", "u1", fakenode.OfStatefulSet)
		}, fakenode.TryAdd, [][]string{
			{"10.0.0.2 Quarantined"}, {"10.0.0.2 Retained"},
			{"10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained"},
		}},
		{"DEL", func(r *fakenode.Node) agentapi.AddRequest {
			web := r.Pod("web", "u1")
			r.MustAdd(web)
			return web
		}, remove, free},
		{"DEL of a pod that keeps its name", func(r *fakenode.Node) agentapi.AddRequest {
			web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
			r.MustAdd(web)
			return web
		}, remove, [][]string{{"10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained"}}},
	}
}

// An agent dies before each of its effects in turn. The one that starts over
// its journal, the kernel's pins and the API has nothing leaked, nothing freed
// that may still speak (the rig watches each write), and no living pod mute.
func TestAnAgentThatDiesAtAnyStepFreesNothingUnproven(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			for step := 0; ; step++ {
				r := fakenode.New(t, fakenode.Pool("v4", "10.0.0.0/24", v1alpha1.ModeEnforce, "10.0.0.2-10.0.0.3"),
					fakenode.Pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2-fd00::3"))
				request := s.setup(r)
				r.Death.Did, r.Death.Left = nil, step
				err := s.call(r, request)
				died := r.Death.Left == 0
				where := fmt.Sprintf("after %q, %v", r.Death.Did, err)
				r.Restart()
				r.API.SetAway(false)
				r.Settle()
				livingHoldersAreTheLeases(r, where)
				// The runtime ends every sandbox, also those whose ADD failed.
				r.Terminate(request)
				for _, e := range r.Attachments.All() {
					r.MustDel(agentapi.AddRequest{Attachment: e.Attachment()})
				}
				r.MustDel(request)
				r.Settle()
				check.None(t, r.Attachments.All(), "%s: journal", where)
				got := r.Names()
				check.That(t, slices.ContainsFunc(s.ends, func(want []string) bool { return slices.Equal(got, want) }),
					"%s: leases %v, want one of %v", where, got, s.ends)
				if t.Failed() {
					return
				}
				r.Attachments.Close()
				if !died {
					check.That(t, err == nil, "without a death: %v", err)
					return
				}
			}
		})
	}
}

// livingHoldersAreTheLeases compares the leases of this node with the pods that
// were told of their addresses.
func livingHoldersAreTheLeases(r *fakenode.Node, where string) {
	r.T.Helper()
	living := map[string]bool{}
	for _, e := range r.Attachments.All() {
		if e.Phase != attachment.Bound {
			r.T.Errorf("%s: entry %+v", where, e)
			continue
		}
		for _, address := range e.Addresses {
			living[address.LeaseName] = true
			if l := r.API.Leases()[address.LeaseName]; l == nil || !release.Holds(l, fakenode.ThisNode, e) || string(l.UID) != address.LeaseUID {
				r.T.Errorf("%s: %s holds %s without a lease: %+v", where, e.ContainerID, address.Addr, l)
			}
		}
	}
	for name, l := range r.API.Leases() {
		check.That(r.T, l.Spec.State != v1alpha1.StateBound || living[name], "%s: %s is leaked: %+v", where, name, l.Spec.Holder)
	}
}

// A pod whose lease is written again must survive a death in between: the new
// lease has another UID than the journal knows.
func TestAnAgentThatDiesWhileItRecreatesALeaseKeepsThePod(t *testing.T) {
	for step := range 6 {
		r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
		r.API.Drop(fakenode.Held("10.0.0.2"))
		r.Death.Left = step
		r.Recovery.Changed("10.0.0.2")
		_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout) // it dies
		r.Restart()
		r.Settle()
		r.HoldsWhatTheJournalSays(web)
		check.That(t, r.HasPod("web") && r.Speaks(web, "10.0.0.2"),
			"dead at step %d: pod exists %v, speaks %v", step, r.HasPod("web"), r.Speaks(web, "10.0.0.2"))
		r.Attachments.Close()
	}
}

// An agent that dies between the take-over's write and the end of the older
// sandbox must end it before the address is free, whichever it resumes first.
func TestTheUndoOfATakeOverEndsTheOlderSandboxFirst(t *testing.T) {
	r, older := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	newer := older
	newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
	r.Death.Did, r.Death.Before = nil, "kill"
	err := fakenode.TryAdd(r, newer)
	check.Must(t, err != nil && slices.Contains(r.Death.Did, "update 10.0.0.2"), "died after %v, %v", r.Death.Did, err)
	r.Restart()
	check.Is(t, r.Recovery.ResumeEntry(t.Context(), newer.Attachment, attachment.AskTimeout), nil, "got")
	r.Want("10.0.0.2 Retained") // the rig has watched that nobody may speak for it
}
