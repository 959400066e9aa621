// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// boundHere is a lease that an ADD of this node has bound.
func boundHere(s *v1alpha1.IPLeaseSpec) {
	s.NodeName, s.Session, s.Holder.OwnerKind = fakenode.ThisNode, fakenode.ThisSession, ""
}

func freeWithoutEntryTwice(r *fakenode.Node) {
	r.T.Helper()
	for range 2 {
		check.OK(r.T, r.Recovery.FreeWithoutEntry(r.T.Context()))
	}
}

func TestWhichLeasesWithoutAnEntryAreFreed(t *testing.T) {
	for _, c := range []struct {
		rule    string
		change  func(*v1alpha1.IPLeaseSpec)
		happens func(*fakenode.Node)
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
		{"not one for which a slot may speak", nil, func(r *fakenode.Node) {
			check.OK(r.T, r.Kernel.InstallLease(fakenode.Key("10.0.0.2"), bpf.Lease{Token: 1, Slot: 9}))
		}, []string{"10.0.0.2 Bound"}},
		{"not one for which a call is under way", nil, func(r *fakenode.Node) {
			unlock, _ := r.TryLock(agentapi.Attachment{ContainerID: "c0", Interface: "eth0"})
			r.T.Cleanup(unlock)
		}, []string{"10.0.0.2 Bound"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
			l := fakenode.Held("10.0.0.2", boundHere)
			if c.change != nil {
				c.change(&l.Spec)
			}
			r.API.Put(l)
			if c.happens != nil {
				c.happens(r)
			}
			freeWithoutEntryTwice(r)
			r.Want(c.left...)
		})
	}
}

func TestOneLookFreesNoLease(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	l := fakenode.Held("10.0.0.2", boundHere)
	for range 3 {
		l = l.DeepCopy()
		l.Spec.Message += "x"
		r.API.Put(l)
		check.OK(t, r.Recovery.FreeWithoutEntry(t.Context()))
	}
	r.Want("10.0.0.2 Bound")
}

func TestALeaseWithAnEntryIsNotFreed(t *testing.T) {
	r, _ := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	// Not for the slot's sake alone.
	check.OK(t, r.Kernel.RemoveLease(fakenode.Key("10.0.0.2")))
	freeWithoutEntryTwice(r)
	r.Want("10.0.0.2 Bound")
}

// The write comes true after the undo's GET has shown that it has not.
func TestAWriteThatComesTrueAfterItsUndoIsFreed(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(fakenode.V4("10.0.0.7")))
	warm := r.WarmLease("10.0.0.7", true)
	r.API.Breaks("update")
	web := r.Pod("web", "u1")
	r.Refused(agentapi.CodeTryAgainLater, web)
	r.API.Before = nil
	r.Settle()
	r.Want("10.0.0.7 Warm")
	late := warm.DeepCopy()
	boundHere := fakenode.Held("10.0.0.7", boundHere).Spec
	boundHere.Holder.ContainerID = web.ContainerID
	late.Spec = boundHere
	r.API.Put(late)
	r.Settle()
	freeWithoutEntryTwice(r)
	r.Want()
}
