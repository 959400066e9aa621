// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"errors"
	"testing"

	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/fakenode"
)

// The pod may be replaced between the decision and the write.
func TestALostLeaseIsNotWrittenForAPodThatWasReplaced(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	r.API.Drop(fakenode.Held("10.0.0.2"))
	e, address, _ := r.Holder(fakenode.Key("10.0.0.2"))
	r.Pod("web", "u2")
	if err := r.Recovery.Rebind(t.Context(), e, address, nil); !errors.Is(err, recovery.ErrOutrun) {
		t.Errorf("got %v", err)
	}
	r.Want()
	r.Pod("web", "u1")
	if err := r.Recovery.Rebind(t.Context(), e, address, nil); err != nil {
		t.Error(err)
	}
	if l := r.Lease("10.0.0.2", v1alpha1.StateBound); l.Spec.Holder.PodUID != "u1" {
		t.Errorf("lease of %+v", l.Spec.Holder)
	}
}

// A claim may come between the decision and the write: the new token must not
// unfence the address.
func TestALostLeaseThatWasClaimedMeanwhileIsNotInstalled(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	r.API.Drop(fakenode.Held("10.0.0.2"))
	e, address, _ := r.Holder(fakenode.Key("10.0.0.2"))
	r.Kernel.Claimed(fakenode.Key("10.0.0.2"), address.Token+1)
	if err := r.Recovery.Rebind(t.Context(), e, address, nil); !errors.Is(err, recovery.ErrOutrun) {
		t.Errorf("got %v", err)
	}
	if r.Speaks(web, "10.0.0.2") {
		t.Error("unfenced")
	}
}

// The store went back to a time at which this node kept the address ready for the next pod. That pod
// has it.
func TestALivingPodTakesTheWarmLeaseOfItsNode(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	r.API.Drop(l)
	l.Spec.State, l.Spec.Holder = v1alpha1.StateWarm, nil
	r.API.Put(l)
	r.Settle()
	if l := r.Lease("10.0.0.2", v1alpha1.StateBound); l.Spec.Holder.PodUID != "u1" {
		t.Errorf("lease of %+v", l.Spec.Holder)
	}
	if !r.Speaks(web, "10.0.0.2") {
		t.Error("fenced")
	}
}
