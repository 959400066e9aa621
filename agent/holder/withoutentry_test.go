package holder

import (
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// boundHere is a lease that an ADD of this node has bound.
func boundHere(s *v1alpha1.IPLeaseSpec) {
	s.NodeName, s.Session, s.Holder.OwnerKind = thisNode, thisSession, ""
}

func (r *rig) freeWithoutEntryTwice() {
	r.t.Helper()
	for range 2 {
		if err := r.freeWithoutEntry(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestWhichLeasesWithoutAnEntryAreFreed(t *testing.T) {
	for _, c := range []struct {
		rule    string
		change  func(*v1alpha1.IPLeaseSpec)
		happens func(*rig)
		left    []string
	}{
		{"one that was bound here", nil, nil, nil},
		{"one of a pod that keeps its name is Retained", func(s *v1alpha1.IPLeaseSpec) { s.Holder.OwnerKind = "StatefulSet" }, nil, []string{"10.0.0.2 Retained"}},
		{"one whose last holder was never proven silent is set aside", func(s *v1alpha1.IPLeaseSpec) {
			s.Previous = &v1alpha1.PreviousHolder{Node: "n2", Session: "node-2/boot-1"}
		}, nil, []string{"10.0.0.2 Quarantined"}},
		{"not one of another node", func(s *v1alpha1.IPLeaseSpec) { s.NodeName = "n2" }, nil, []string{"10.0.0.2 Bound"}},
		{"not one of another session", func(s *v1alpha1.IPLeaseSpec) { s.Session = "node-1/boot-0" }, nil, []string{"10.0.0.2 Bound"}},
		{"not one that is Warm", func(s *v1alpha1.IPLeaseSpec) { s.State, s.Holder = v1alpha1.StateWarm, nil }, nil, []string{"10.0.0.2 Warm"}},
		{"not one for which a slot may speak", nil, func(r *rig) {
			if err := r.kernel.InstallLease(key("10.0.0.2"), bpf.Lease{Token: 1, Slot: 9}); err != nil {
				r.t.Fatal(err)
			}
		}, []string{"10.0.0.2 Bound"}},
		{"not one for which a call is under way", nil, func(r *rig) {
			r.t.Cleanup(r.attachments.lock(attachment{"c0", "eth0"}))
		}, []string{"10.0.0.2 Bound"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2-10.0.0.9"))
			l := held("10.0.0.2", boundHere)
			if c.change != nil {
				c.change(&l.Spec)
			}
			r.api.put(l)
			if c.happens != nil {
				c.happens(r)
			}
			r.freeWithoutEntryTwice()
			r.want(c.left...)
		})
	}
}

func TestOneLookFreesNoLease(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	l := held("10.0.0.2", boundHere)
	for range 3 {
		l = l.DeepCopy()
		l.Spec.Message += "x"
		r.api.put(l)
		if err := r.freeWithoutEntry(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.want("10.0.0.2 Bound")
}

func TestALeaseWithAnEntryIsNotFreed(t *testing.T) {
	r := newRig(t, v4("10.0.0.2-10.0.0.9"))
	web := r.pod("web", "u1")
	r.add(web)
	// Not for the slot's sake alone.
	if err := r.kernel.RemoveLease(key("10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	r.freeWithoutEntryTwice()
	r.want("10.0.0.2 Bound")
}

// The write comes true after the undo's GET has shown that it has not.
func TestAWriteThatComesTrueAfterItsUndoIsFreed(t *testing.T) {
	r := newRig(t, warmed(v4("10.0.0.7")))
	warm := r.warmLease("10.0.0.7", true)
	r.api.before = func(verb, _ string) error {
		if verb == "update" {
			return &netError{}
		}
		return nil
	}
	web := r.pod("web", "u1")
	r.refused(agentapi.CodeTryAgainLater, web)
	r.api.before = nil
	r.settle()
	r.want("10.0.0.7 Warm")
	late := warm.DeepCopy()
	boundHere := held("10.0.0.7", boundHere).Spec
	boundHere.Holder.ContainerID = web.ContainerID
	late.Spec = boundHere
	r.api.put(late)
	r.settle()
	r.freeWithoutEntryTwice()
	r.want()
}
