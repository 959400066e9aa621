// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Policy is the reclaim policy of the cluster and a pool.
type Policy struct {
	// Enabled is the switch of the cluster. If it is false, no address is taken and no retention ends.
	Enabled bool
	// Terminating takes addresses of pods that stay Terminating.
	Terminating bool
	// ExtraGrace is the wait after the time at which Kubernetes expects a pod to be gone. During this
	// time the agent's own DEL frees the address.
	ExtraGrace time.Duration
	// NodeDown is the policy for holders on a silent node.
	NodeDown NodeDown
	// RetentionLimit is how long a lease may stay Retained; 0 means no limit. As a default it is for
	// pools that no longer exist: the CRD sets it in the others.
	RetentionLimit time.Duration
}

// AddFlags adds the flags of the controller that set the policy, and sets their defaults.
func (p *Policy) AddFlags(flags *flag.FlagSet) {
	*p = Policy{NodeDown: NodeDown{Take: true}, RetentionLimit: v1alpha1.DefaultRetention}
	flags.BoolVar(&p.Enabled, "reclaim", true, "take addresses by force and end retention; if false, only the verification of Quarantined leases goes on")
	flags.BoolVar(&p.Terminating, "terminating", true, "take addresses of pods that stay Terminating; for pools without reclaim.terminating")
	flags.DurationVar(&p.ExtraGrace, "extra-grace", 5*time.Second, "how long to wait after the end of a pod before its address is taken; for pools without reclaim.extraGrace")
	flags.Func("node-down", "Never, AfterTerminating or After `duration`, for pools without reclaim.nodeDown (default AfterTerminating)", func(text string) (err error) {
		p.NodeDown, err = ParseNodeDown(v1alpha1.NodeDownPolicy(text))
		return err
	})
}

// NodeDown is the policy for addresses of holders on a silent node. The zero value takes none.
type NodeDown struct {
	// Take the addresses of pods that are Terminating or gone.
	Take bool
	// DeletePods deletes the other pods, so that their addresses can be taken (R12).
	DeletePods bool
	// After is how long the node must have been silent for both.
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
	return NodeDown{}, fmt.Errorf("nodeDown is %q, want %s, %s or After with a duration such as After 2m",
		text, v1alpha1.NodeDownNever, v1alpha1.NodeDownAfterTerminating)
}

// String returns the text that ParseNodeDown reads.
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

// PolicyOf returns the policy of a pool: its own settings, and the defaults for settings that it
// does not have. A nil pool, which no longer exists, has the defaults.
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
	policy.Terminating = ptr.Deref(reclaim.Terminating, policy.Terminating)
	if reclaim.ExtraGrace != nil {
		policy.ExtraGrace = reclaim.ExtraGrace.Duration
	}
	if reclaim.NodeDown != "" {
		// The CRD refuses an invalid text.
		policy.NodeDown, _ = ParseNodeDown(reclaim.NodeDown)
	}
	return policy
}
