package holder

import (
	"context"
	"errors"
	"testing"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// Who only asks for the address may be the verifier of the quarantine that the
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
			r := newRig(t, v4("10.0.0.2"))
			r.api.put(held("10.0.0.2", quarantined(v1alpha1.ReasonPodTerminating)))
			r.wire.probers, r.wire.verdicts[two] = test.probers, test.verdict
			web := r.pod("web-0", "u1", ofStatefulSet)
			if test.safe {
				r.add(web)
				r.want("10.0.0.2 Bound")
			} else {
				r.refused(agentapi.CodeTryAgainLater, web)
				r.want("10.0.0.2 Quarantined")
			}
			if looks := r.wire.times("verify 10.0.0.2"); looks != test.looks {
				t.Errorf("verified %d times, want %d", looks, test.looks)
			}
		})
	}
}

// brokenWire cannot verify.
type brokenWire struct{ *memWire }

func (brokenWire) Verify(context.Context, segment.Verification) (segment.Verdict, segment.Evidence, error) {
	return segment.Unknown, segment.Evidence{}, errors.New("the parent is down")
}

// An address that was proven, and that nobody answered for, is as proven as it
// was, however the take-over fails.
func TestAFailedTakeOverOfAProvenAddressLeavesItRetained(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails func(*rig)
		state string
	}{
		{"it could not be verified", func(r *rig) {
			r.OpenSegment = func(int) (Segment, error) { return brokenWire{r.wire}, nil }
		}, "Retained"},
		{"it was fenced before it spoke", func(r *rig) {
			r.wire.onClaim = func(c segment.Claim) { r.kernel.claimed(key("10.0.0.2"), c.Token+1) }
		}, "Retained"},
		{"somebody answered", func(r *rig) { r.wire.verdicts[two] = segment.Answered }, "Quarantined"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, v4("10.0.0.2"))
			r.api.put(held("10.0.0.2", retained))
			test.fails(r)
			if err := add(r, r.pod("web-0", "u1", ofStatefulSet)); err == nil {
				t.Fatal("ADD succeeds")
			}
			r.settle()
			r.want("10.0.0.2 " + test.state)
			l := r.api.leases()["10.0.0.2"]
			if proven := test.state == "Retained"; proven == (l.Spec.Reason == v1alpha1.ReasonUnverified) {
				t.Errorf("reason %q", l.Spec.Reason)
			}
			if l.Spec.Holder == nil || l.Spec.Holder.Pod != "web-0" {
				t.Errorf("kept for %+v", l.Spec.Holder)
			}
		})
	}
}
