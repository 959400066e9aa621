// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"testing"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/fakenode"
)

// An etcd that is restored without --bump-revision hands out revisions again: a
// lease that is written again is older than its holder's token.
func TestAHolderKeepsItsTokenUntilTheStoreHasComeAsFarAgain(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2"))
	r.API.Version = 5000
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	token := func() uint64 {
		t.Helper()
		installed, _, err := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
		e, _ := r.Journal.Get(web.ContainerID, web.Interface)
		if err != nil || e.Addresses[0].Token != installed.Token {
			t.Fatalf("the journal says %+v, the kernel %+v, %v", e.Addresses[0], installed, err)
		}
		return installed.Token
	}
	before := token()

	r.API.Drop(fakenode.Held("10.0.0.2"))
	r.API.Version = 1000
	for _, what := range []string{"at once", "after a restart", "after another"} {
		r.Restart()
		r.Settle()
		l := r.Lease("10.0.0.2", v1alpha1.StateBound)
		if l.Spec.Reason != v1alpha1.ReasonStoreWentBack || l.Spec.Message == "" || token() != before || !r.Speaks(web, "10.0.0.2") {
			t.Errorf("%s: lease %+v, token %d, was %d, speaks %v", what, l.Spec, token(), before, r.Speaks(web, "10.0.0.2"))
		}
	}
	if got := r.Calls("update"); got != 1 {
		t.Errorf("the lease was told %d times", got)
	}

	r.API.Version = 1_000_000
	if r.Recovery.Suspect(t.Context()); len(r.Pending.Take()) != 1 {
		t.Error("the audit does not look at it")
	}
	r.Restart()
	r.Settle()
	l := r.Lease("10.0.0.2", v1alpha1.StateBound)
	if l.Spec.Reason != "" || l.Spec.Message != "" || token() <= before || !r.Speaks(web, "10.0.0.2") {
		t.Errorf("caught up: lease %+v, token %d, was %d, speaks %v", l.Spec, token(), before, r.Speaks(web, "10.0.0.2"))
	}
	r.MustDel(web)
	r.Want()
}
