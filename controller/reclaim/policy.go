package reclaim

import (
	"strings"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Policy is a pool's reclaim policy with the cluster's defaults filled in.
type Policy struct {
	// Terminating takes addresses of pods that stay Terminating.
	Terminating bool
	// ExtraGrace is waited beyond the moment at which Kubernetes expects a pod
	// to be gone, because until then the agent's own DEL does the work.
	ExtraGrace time.Duration
	// NodeDown rules over holders on a node that is silent.
	NodeDown v1alpha1.NodeDownPolicy
	// NodeDownAfter, if positive, deletes pods of a node that has been silent for so long (R12).
	NodeDownAfter time.Duration
	// RetentionLimit caps the time that a lease stays Retained; 0 is no limit.
	RetentionLimit time.Duration
}

// PolicyOf returns the policy of a pool. A nil pool, one that does not exist
// any more, has the defaults.
func PolicyOf(pool *v1alpha1.IPPool, extraGrace time.Duration) Policy {
	policy := Policy{
		Terminating: true,
		ExtraGrace:  extraGrace,
		NodeDown:    v1alpha1.NodeDownAfterTerminating,
	}
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
	if reclaim.NodeDown == "" {
		return policy
	}
	policy.NodeDown = reclaim.NodeDown
	if text, ok := strings.CutPrefix(string(reclaim.NodeDown), v1alpha1.NodeDownAfterPrefix); ok {
		// A duration that cannot be read waits for Kubernetes to mark the pods.
		policy.NodeDown = v1alpha1.NodeDownAfterTerminating
		if d, err := time.ParseDuration(text); err == nil {
			policy.NodeDownAfter = d
		}
	}
	return policy
}

// takesFromSilent says whether the address of a holder on a silent node may be
// taken. A holder without a guard cannot be fenced, so it is waited for.
func (p Policy) takesFromSilent(holder *v1alpha1.Holder) bool {
	return holder.Guarded && p.NodeDown == v1alpha1.NodeDownAfterTerminating
}
