// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// The host that only asks for the address may be the verifier of the quarantine that the
// take-over has just ended.
func TestATakeOverThatMeetsAProberVerifiesOnceMore(t *testing.T) {
	for _, test := range []struct {
		name    string
		probers int
		verdict segment.Verdict
		looks   int
		safe    bool
	}{
		{"nobody asks", 0, segment.Fenced, 1, true},
		{"a prober that was done then", 1, segment.Fenced, 2, true},
		{"a prober, and no proof then (R2)", 1, segment.Unknown, 2, false},
		{"a prober, and a speaker then", 1, segment.Answered, 2, false},
		{"one that keeps asking", 2, segment.Fenced, 2, false},
		{"one that speaks", 0, segment.Answered, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Quarantined(v1alpha1.ReasonPodTerminating)))
			r.Wire.Probers, r.Wire.Verdicts[fakenode.Two] = test.probers, test.verdict
			web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
			if test.safe {
				r.MustAdd(web)
				r.Want("10.0.0.2 Bound")
			} else {
				r.Refused(agentapi.CodeTryAgainLater, web)
				r.Want("10.0.0.2 Quarantined")
			}
			check.Equal(t, r.Wire.Times("verify 10.0.0.2"), test.looks, "verifications:")
		})
	}
}

// brokenWire cannot verify.
type brokenWire struct{ *fakenode.Wire }

func (brokenWire) Verify(context.Context, segment.Verification) (segment.Verdict, segment.Evidence, error) {
	return segment.Unknown, segment.Evidence{}, errors.New("the parent is down")
}

// An address that was proven, and that nobody answered for, is as proven as it
// was, however the take-over fails.
func TestAFailedTakeOverOfAProvenAddressLeavesItRetained(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails func(*fakenode.Node)
		state string
	}{
		{"it could not be verified", func(r *fakenode.Node) {
			r.Wait() // the steps after the answer open the segment
			r.OpenSegment = func(int) (node.Segment, error) { return brokenWire{r.Wire}, nil }
		}, "Retained"},
		{"it was fenced before it spoke", func(r *fakenode.Node) {
			r.Wire.OnClaim = func(c segment.Claim) { r.Kernel.Claimed(fakenode.Key("10.0.0.2"), c.Token+1) }
		}, "Retained"},
		{"somebody answered", func(r *fakenode.Node) { r.Wire.Verdicts[fakenode.Two] = segment.Answered }, "Quarantined"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fakenode.New(t, fakenode.V4("10.0.0.2"))
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
			test.fails(r)
			check.Must(t, fakenode.TryAdd(r, r.Pod("web-0", "u1", fakenode.OfStatefulSet)) != nil, "ADD succeeds")
			r.Settle()
			r.Want("10.0.0.2 " + test.state)
			l := r.API.Leases()["10.0.0.2"]
			check.Equal(t, l.Spec.Reason == v1alpha1.ReasonUnverified, test.state != "Retained", "reason %q: unverified", l.Spec.Reason)
			check.That(t, l.Spec.Holder != nil && l.Spec.Holder.Pod == "web-0", "kept for %+v", l.Spec.Holder)
		})
	}
}
