package holder

import (
	"errors"
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// The pod may be replaced between the decision and the write.
func TestALostLeaseIsNotWrittenForAPodThatWasReplaced(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	r.api.drop(held("10.0.0.2"))
	e, address, _ := r.Holder(key("10.0.0.2"))
	r.pod("web", "u2")
	if err := r.rebind(t.Context(), e, address, nil); !errors.Is(err, errOutrun) {
		t.Errorf("got %v", err)
	}
	r.want()
	r.pod("web", "u1")
	if err := r.rebind(t.Context(), e, address, nil); err != nil {
		t.Error(err)
	}
	if l := r.lease("10.0.0.2", v1alpha1.StateBound); l.Spec.Holder.PodUID != "u1" {
		t.Errorf("lease of %+v", l.Spec.Holder)
	}
}

// A claim may come between the decision and the write: the new token must not
// unfence the address.
func TestALostLeaseThatWasClaimedMeanwhileIsNotInstalled(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	web := r.pod("web", "u1")
	r.add(web)
	r.api.drop(held("10.0.0.2"))
	e, address, _ := r.Holder(key("10.0.0.2"))
	r.kernel.claimed(key("10.0.0.2"), address.Token+1)
	if err := r.rebind(t.Context(), e, address, nil); !errors.Is(err, errOutrun) {
		t.Errorf("got %v", err)
	}
	if r.speaks(web, "10.0.0.2") {
		t.Error("unfenced")
	}
}
