// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// fencedNode is a node whose pod was fenced by a claim with a token, while the store is at revision 1000.
func fencedNode(t *testing.T, claimed, known uint64, verdict segment.Verdict) (*fakenode.Node, agentapi.AddRequest) {
	t.Helper()
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2"))
	r.API.Version, r.Kernel.Known = 1000, known
	r.Kernel.Claimed(fakenode.Key("10.0.0.2"), claimed)
	r.Wire.Verdicts = map[netip.Addr]segment.Verdict{fakenode.Two: verdict}
	r.Wire.Forget()
	return r, web
}

// lives reports whether the pod web exists.
func lives(t *testing.T, r *fakenode.Node) bool {
	t.Helper()
	err := r.API.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, &corev1.Pod{})
	check.Must(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	return err == nil
}

// The live lease is the pod's own, so nobody of this cluster meant to fence it.
func TestAFenceThatWasNotMeantEnds(t *testing.T) {
	for rule, c := range map[string]struct {
		claimed, known uint64
		verdict        segment.Verdict
		speaks         bool
	}{
		"another write outranks the claim":                    {900, 1000, segment.Silent, true},
		"a holder by that claim was fenced in turn":           {900, 1000, segment.Fenced, true},
		"another speaker answers":                             {900, 1000, segment.Answered, false},
		"nobody would be heard (R2)":                          {900, 1000, segment.Unknown, false},
		"the store never gave the token, and nobody speaks":   {1 << 40, 1000, segment.Silent, true},
		"the store never gave the token, and somebody speaks": {1 << 40, 1000, segment.Answered, false},
	} {
		t.Run(rule, func(t *testing.T) {
			r, web := fencedNode(t, c.claimed, c.known, c.verdict)
			for range 3 { // tries, or restarts after the first one
				r.Restart()
				r.Recovery.LookAgain()
				_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
				check.Equal(t, r.Speaks(web, "10.0.0.2"), c.speaks, "speaks")
			}
			check.Equal(t, r.Wire.Took("announce 10.0.0.2"), c.speaks, "announced")
			l := r.Lease("10.0.0.2", v1alpha1.StateBound)
			check.That(t, l.Spec.Holder.PodUID == "u1" && lives(t, r), "the pod lost its address: %+v", l.Spec)
			if c.speaks {
				r.MustDel(web)
				r.Want()
			}
		})
	}
}

// The controller may take the lease from the pod while nobody speaks by its address.
func TestALeaseThatIsTakenDuringTheProofEndsTheRenewal(t *testing.T) {
	for rule, claimed := range map[string]uint64{"outranked": 900, "disproved": 1 << 40} {
		t.Run(rule, func(t *testing.T) {
			r, web := fencedNode(t, claimed, 1000, segment.Silent)
			r.Wire.OnVerify = func(segment.Verification) {
				l := r.Lease("10.0.0.2", v1alpha1.StateBound)
				l.Spec.State, l.Spec.Reason = v1alpha1.StateQuarantined, v1alpha1.ReasonNodeUnreachable
				check.Is(t, r.API.Update(t.Context(), l), nil, "got")
			}
			r.Recovery.LookAgain()
			_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
			check.That(t, !r.Speaks(web, "10.0.0.2") && !r.Wire.Took("announce 10.0.0.2"), "the pod speaks by an address that was taken from it")
		})
	}
}

// A pool that does not enforce fences nobody, so its pods wait for no proof.
func TestAFenceInAPoolThatDoesNotEnforceEnds(t *testing.T) {
	for _, mode := range []v1alpha1.ConflictMode{v1alpha1.ModeObserve, v1alpha1.ModeOff} {
		r, web := fakenode.WithPod(t, fakenode.Pool("v4", "10.0.0.0/24", mode, "10.0.0.2"))
		r.Kernel.Claimed(fakenode.Key("10.0.0.2"), 1<<40)
		r.Terminate(web) // a pod that is ending needs its network too
		r.Settle()
		check.That(t, r.Speaks(web, "10.0.0.2"), "mode %s: the pod is mute", mode)
	}
}

// The store gave the token, and lost the lease of the pod that got it: that pod may have the address.
func TestAHolderGivesWayToAPodWhoseLeaseTheStoreLost(t *testing.T) {
	r, web := fencedNode(t, 2000, 3000, segment.Silent)
	r.Settle()
	check.That(t, !r.Speaks(web, "10.0.0.2") && !lives(t, r), "the pod stays, and another pod may have its address")
}

// Whoever replays old claims has more than one of them. Each ends the speech of a pod once.
func TestTokensThatAreReplayedInTurnMuteOnceEach(t *testing.T) {
	r, web := fencedNode(t, 1<<40, 1000, segment.Silent)
	tokens := []uint64{1 << 40, 1<<40 + 5, 1<<40 - 5, 1 << 30}
	renewed := func(claimed uint64) bool {
		t.Helper()
		r.Skip(time.Hour)
		before := r.Wire.Times("verify 10.0.0.2")
		r.Kernel.Claimed(fakenode.Key("10.0.0.2"), claimed)
		r.Restart()
		r.Settle()
		check.That(t, r.Speaks(web, "10.0.0.2"), "the pod is mute after the claim %d", claimed)
		return r.Wire.Times("verify 10.0.0.2") > before
	}
	for _, token := range tokens {
		check.That(t, renewed(token), "the claim %d was new, and fenced nothing", token)
	}
	for range 2 {
		for _, token := range append(tokens, 900) { // 900 is outranked by the renewals
			check.That(t, !renewed(token), "the claim %d fenced again", token)
		}
	}
	renewed(uint64(r.API.Version) + 1)
	for _, token := range tokens {
		check.That(t, !renewed(token), "the claim %d fenced again after a renewal that disproved nothing", token)
	}
}

// A replayed claim must not make the node write at the rate at which it is sent.
func TestRenewalsAreLimited(t *testing.T) {
	r, web := fencedNode(t, 900, 1000, segment.Answered)
	tries := func(d time.Duration) (n int) {
		t.Helper()
		before := r.Wire.Times("verify 10.0.0.2")
		for range d / time.Second {
			r.Attachments.Pending.Add(web.Attachment)
			_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
			r.Skip(time.Second)
		}
		return r.Wire.Times("verify 10.0.0.2") - before
	}
	n := tries(9 * time.Second)
	check.That(t, n == 1, "%d tries in the first seconds, want 1", n)
	n = tries(10 * time.Minute)
	check.That(t, n >= 9 && n <= 15, "%d tries in ten minutes, want about one a minute", n)
	r.Wire.Verdicts[fakenode.Two] = segment.Silent
	tries(time.Minute)
	check.That(t, r.Speaks(web, "10.0.0.2"), "the pod is mute after the other speaker has left")
	var told int
	for range len(r.Recorder.Events) {
		if strings.Contains(<-r.Recorder.Events, "FenceNotEnded") {
			told++
		}
	}
	check.That(t, told >= 9, "%d events say why the pod is mute", told)
}

// An agent may die at any step of a renewal. The pod is fenced until the end of the proof.
func TestARenewalOutlivesItsAgent(t *testing.T) {
	for step := range 8 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			r, web := fencedNode(t, 1<<40, 1000, segment.Answered)
			r.Death.Left = step
			r.Recovery.LookAgain()
			_, _ = r.Recovery.Resume(t.Context(), attachment.AskTimeout)
			r.Restart()
			check.That(t, !r.Speaks(web, "10.0.0.2"), "the pod speaks without a proof")
			r.Wire.Verdicts[fakenode.Two] = segment.Silent
			r.Settle()
			check.That(t, r.Speaks(web, "10.0.0.2"), "the pod stays mute")
			r.Kernel.Claimed(fakenode.Key("10.0.0.2"), uint64(r.API.Version)+1)
			check.That(t, !r.Speaks(web, "10.0.0.2"), "a later token of the store does not fence")
		})
	}
}
