package holder

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// story is one call that an agent may die in.
type story struct {
	name  string
	setup func(*rig) agentapi.AddRequest
	call  func(*rig, agentapi.AddRequest) error
	// ends are the leases that may be there after everything was released.
	ends [][]string
}

func add(r *rig, request agentapi.AddRequest) error {
	_, err := r.Add(r.t.Context(), request)
	if err != nil {
		// The plugin that called takes its interface away again.
		r.kernel.unplug(request.NetNS, request.Interface)
	}
	return err
}

func remove(r *rig, request agentapi.AddRequest) error { return r.Del(r.t.Context(), del(request)) }

func stories() []story {
	free := [][]string{{}}
	return []story{
		{"ADD", func(r *rig) agentapi.AddRequest { return r.pod("web", "u1") }, add, free},
		{"ADD with a conflict", func(r *rig) agentapi.AddRequest {
			r.wire.answers[two] = stranger
			return r.pod("web", "u1")
		}, add, [][]string{{}, {"10.0.0.2 Quarantined"}, {"10.0.0.2 Quarantined", "fd00-0000-0000-0000-0000-0000-0000-0002 Quarantined"}}},
		{"ADD for a newer sandbox", func(r *rig) agentapi.AddRequest {
			older := r.pod("web", "u1")
			r.add(older)
			newer := older
			newer.ContainerID, newer.NetNS = "c-newer", "/netns/c-newer"
			return newer
		}, add, free},
		{"ADD that takes a retained address over", func(r *rig) agentapi.AddRequest {
			r.api.put(held("10.0.0.2", retained))
			return r.pod("web-0", "u1", ofStatefulSet)
		}, add, [][]string{{"10.0.0.2 Retained"}, {"10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained"}}},
		{"ADD that takes a quarantined address over", func(r *rig) agentapi.AddRequest {
			r.api.put(held("10.0.0.2", quarantined(v1alpha1.ReasonPodGone)))
			r.wire.verdicts[two] = segment.Silent
			return r.pod("web-0", "u1", ofStatefulSet)
		}, add, [][]string{
			{"10.0.0.2 Quarantined"}, {"10.0.0.2 Retained"},
			{"10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained"},
		}},
		{"DEL", func(r *rig) agentapi.AddRequest {
			web := r.pod("web", "u1")
			r.add(web)
			return web
		}, remove, free},
		{"DEL of a pod that keeps its name", func(r *rig) agentapi.AddRequest {
			web := r.pod("web-0", "u1", ofStatefulSet)
			r.add(web)
			return web
		}, remove, [][]string{{"10.0.0.2 Retained", "fd00-0000-0000-0000-0000-0000-0000-0002 Retained"}}},
	}
}

// An agent dies before each of its effects in turn. The one that starts over
// its journal, the kernel's pins and the API has nothing leaked, nothing freed
// that may still speak (the rig watches each write), and no living pod mute.
func TestAnAgentThatDiesAtAnyStepLeaksNothingAndFreesNothingUnproven(t *testing.T) {
	for _, s := range stories() {
		t.Run(s.name, func(t *testing.T) {
			for step := 0; ; step++ {
				r := newRig(t, pool("v4", "10.0.0.0/24", v1alpha1.ModeEnforce, "10.0.0.2-10.0.0.3"),
					pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2-fd00::3"))
				request := s.setup(r)
				r.death.did, r.death.left = nil, step
				err := s.call(r, request)
				died := r.death.left == 0
				where := fmt.Sprintf("after %q, %v", r.death.did, err)
				r.restart()
				r.settle()
				r.livingHoldersAreTheLeases(where)
				// The runtime ends every sandbox, also those whose ADD failed.
				for _, e := range r.Journal.All() {
					r.del(agentapi.AddRequest{Attachment: agentAttachment(e)})
				}
				r.del(request)
				r.settle()
				if left := r.Journal.All(); len(left) != 0 {
					t.Errorf("%s: journal %+v", where, left)
				}
				if got := r.names(); !slices.ContainsFunc(s.ends, func(want []string) bool { return slices.Equal(got, want) }) {
					t.Errorf("%s: leases %v, want one of %v", where, got, s.ends)
				}
				if t.Failed() {
					return
				}
				r.book.Close()
				if !died {
					if err != nil {
						t.Errorf("without a death: %v", err)
					}
					t.Logf("%d deaths; %s", step, where)
					return
				}
			}
		})
	}
}

// livingHoldersAreTheLeases compares the leases of this node with the pods that
// were told of their addresses.
func (r *rig) livingHoldersAreTheLeases(where string) {
	r.t.Helper()
	living := map[string]bool{}
	for _, e := range r.Journal.All() {
		if e.Phase != journal.Bound {
			r.t.Errorf("%s: entry %+v", where, e)
			continue
		}
		for _, address := range e.Addresses {
			living[address.LeaseName] = true
			if l := r.api.leases()[address.LeaseName]; l == nil || !holds(l, thisNode, e) || string(l.UID) != address.LeaseUID {
				r.t.Errorf("%s: %s holds %s without a lease: %+v", where, e.ContainerID, address.Addr, l)
			}
		}
	}
	for name, l := range r.api.leases() {
		if l.Spec.State == v1alpha1.StateBound && !living[name] {
			r.t.Errorf("%s: %s is leaked: %+v", where, name, l.Spec.Holder)
		}
	}
}

// A pod whose lease is written again must survive a death in between: the new
// lease has another UID than the journal knows.
func TestAnAgentThatDiesWhileItRecreatesALeaseKeepsThePod(t *testing.T) {
	for step := range 6 {
		r := newRig(t, v4("10.0.0.2"))
		web := r.pod("web", "u1")
		r.add(web)
		r.api.drop(held("10.0.0.2"))
		r.death.left = step
		r.Changed("10.0.0.2")
		_, _ = r.resume(t.Context(), askTimeout) // it dies
		r.restart()
		r.settle()
		r.holdsWhatTheJournalSays(web)
		if _, exists := r.api.objects[keyFor(podOf("web"), clientObjectKey("web"))]; !exists || !r.speaks(web, "10.0.0.2") {
			t.Errorf("dead at step %d: pod exists %v, speaks %v", step, exists, r.speaks(web, "10.0.0.2"))
		}
		r.book.Close()
	}
}
