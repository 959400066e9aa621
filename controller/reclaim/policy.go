package reclaim

import (
	"fmt"
	"strings"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Policy is what the cluster and a pool say about reclaim.
type Policy struct {
	// Enabled is the cluster's switch: without it nothing is taken from anybody,
	// and no retention ends.
	Enabled bool
	// Terminating takes addresses of pods that stay Terminating.
	Terminating bool
	// ExtraGrace is waited beyond the moment at which Kubernetes expects a pod
	// to be gone, because until then the agent's own DEL does the work.
	ExtraGrace time.Duration
	// NodeDown rules over holders on a node that is silent.
	NodeDown NodeDown
	// RetentionLimit caps the time that a lease stays Retained; 0 is no limit.
	RetentionLimit time.Duration
}

// NodeDown says when the address of a holder on a silent node is taken. The
// zero value never takes one.
type NodeDown struct {
	// Take addresses of pods that are to go, or gone.
	Take bool
	// DeletePods that are to stay as well, so that their addresses can be taken (R12).
	DeletePods bool
	// After is how long the node must have been silent for either.
	After time.Duration
}

// ParseNodeDown reads Never, AfterTerminating or "After <duration>".
func ParseNodeDown(text v1alpha1.NodeDownPolicy) (NodeDown, error) {
	switch text {
	case v1alpha1.NodeDownNever:
		return NodeDown{}, nil
	case v1alpha1.NodeDownAfterTerminating:
		return NodeDown{Take: true}, nil
	}
	if duration, ok := strings.CutPrefix(string(text), v1alpha1.NodeDownAfterPrefix); ok {
		if d, err := time.ParseDuration(duration); err == nil && d >= 0 {
			return NodeDown{Take: true, DeletePods: true, After: d}, nil
		}
	}
	return NodeDown{}, fmt.Errorf("%q is none of %s, %s and After with a duration such as After 2m",
		text, v1alpha1.NodeDownNever, v1alpha1.NodeDownAfterTerminating)
}

// String is what ParseNodeDown reads.
func (n NodeDown) String() string {
	switch {
	case !n.Take:
		return string(v1alpha1.NodeDownNever)
	case !n.DeletePods:
		return string(v1alpha1.NodeDownAfterTerminating)
	default:
		return v1alpha1.NodeDownAfterPrefix + n.After.String()
	}
}

// PolicyOf returns what holds for a pool: what it says itself, and the
// cluster's defaults where it says nothing. A nil pool, one that does not exist
// any more, has the defaults.
func PolicyOf(pool *v1alpha1.IPPool, defaults Policy) Policy {
	policy := defaults
	if pool == nil {
		return policy
	}
	if r := pool.Spec.Retention; r != nil && r.Max != nil {
		policy.RetentionLimit = r.Max.Duration
	}
	reclaim := pool.Spec.Reclaim
	if reclaim == nil {
		return policy
	}
	if reclaim.Terminating != nil {
		policy.Terminating = *reclaim.Terminating
	}
	if reclaim.ExtraGrace != nil {
		policy.ExtraGrace = reclaim.ExtraGrace.Duration
	}
	if reclaim.NodeDown != "" {
		// What cannot be read takes nothing; the CRD refuses it.
		policy.NodeDown, _ = ParseNodeDown(reclaim.NodeDown)
	}
	return policy
}

// takesFromSilent says whether the address of a holder on a silent node may be
// taken at all. A holder without a guard cannot be fenced, so it is waited for.
func (p Policy) takesFromSilent(holder *v1alpha1.Holder) bool {
	return holder.Guarded && p.NodeDown.Take
}
