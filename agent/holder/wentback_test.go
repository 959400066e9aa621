package holder

import (
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// An etcd that is restored without --bump-revision hands out revisions again: a
// lease that is written again is older than its holder's token.
func TestAHolderKeepsItsTokenUntilTheStoreHasComeAsFarAgain(t *testing.T) {
	r := newRig(t, v4("10.0.0.2"))
	r.api.version = 5000
	web := r.pod("web", "u1")
	r.add(web)
	token := func() uint64 {
		t.Helper()
		installed, _, err := r.kernel.Lease(key("10.0.0.2"))
		e, _ := r.Journal.Get(web.ContainerID, web.Interface)
		if err != nil || e.Addresses[0].Token != installed.Token {
			t.Fatalf("the journal says %+v, the kernel %+v, %v", e.Addresses[0], installed, err)
		}
		return installed.Token
	}
	before := token()

	r.api.drop(held("10.0.0.2"))
	r.api.version = 1000
	for _, what := range []string{"at once", "after a restart", "after another"} {
		r.restart()
		r.settle()
		l := r.lease("10.0.0.2", v1alpha1.StateBound)
		if l.Spec.Reason != v1alpha1.ReasonStoreWentBack || l.Spec.Message == "" || token() != before || !r.speaks(web, "10.0.0.2") {
			t.Errorf("%s: lease %+v, token %d, was %d, speaks %v", what, l.Spec, token(), before, r.speaks(web, "10.0.0.2"))
		}
	}
	if got := r.calls("update"); got != 1 {
		t.Errorf("the lease was told %d times", got)
	}

	r.api.version = 1_000_000
	if r.suspect(t.Context()); len(r.pending.take()) != 1 {
		t.Error("the audit does not look at it")
	}
	r.restart()
	r.settle()
	l := r.lease("10.0.0.2", v1alpha1.StateBound)
	if l.Spec.Reason != "" || l.Spec.Message != "" || token() <= before || !r.speaks(web, "10.0.0.2") {
		t.Errorf("caught up: lease %+v, token %d, was %d, speaks %v", l.Spec, token(), before, r.speaks(web, "10.0.0.2"))
	}
	r.del(web)
	r.want()
}
