// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"fmt"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// remarkPrefix marks the controller's messages. Agents write messages without it.
const remarkPrefix = "controller: "

// remark is the reason and message of a lease that the controller leaves alone.
type remark struct {
	reason  v1alpha1.LeaseReason
	message string
}

// remarkOn returns the remark of a lease that the controller leaves alone: the fault of the record,
// how the lease ends, and why the controller does nothing. A reason or message of an agent stays.
// The remark of a Quarantined lease never changes, because it is the verifier's answer.
func remarkOn(lease *v1alpha1.IPLease, pool *v1alpha1.IPPool, a Action) remark {
	spec := &lease.Spec
	if spec.State == v1alpha1.StateQuarantined {
		return remark{spec.Reason, spec.Message}
	}
	var said remark
	var sentences []string
	switch {
	case pool == nil:
		said.reason = v1alpha1.ReasonPoolGone
		sentences = append(sentences, fmt.Sprintf("pool %s does not exist; %s", spec.Pool, endOf(spec.State)))
	case hasLeft(lease, pool):
		said.reason = v1alpha1.ReasonOutsidePool
		sentences = append(sentences, fmt.Sprintf("pool %s no longer has the address; %s", pool.Name, endOf(spec.State)))
	}
	if a.Tell {
		sentences = append(sentences, a.Why)
		if said.reason == "" && !a.Withheld {
			said.reason = a.Reason
		}
	}
	if len(sentences) > 0 {
		said.message = remarkPrefix + strings.Join(sentences, "; ")
	}
	if spec.Reason != "" && !isRemark(spec.Reason) {
		said.reason = spec.Reason
	}
	if spec.Message != "" && !strings.HasPrefix(spec.Message, remarkPrefix) {
		said.message = spec.Message
	}
	return said
}

// isRemark reports whether the controller, not an agent, writes the reason.
func isRemark(reason v1alpha1.LeaseReason) bool {
	return reason == v1alpha1.ReasonPoolGone || reason == v1alpha1.ReasonOutsidePool || reason == v1alpha1.ReasonNoHolder
}

// endOf returns the end of a lease for people, if its pool is gone or no longer has the address. A
// damaged record takes no address from a living pod or from a name.
func endOf(state v1alpha1.LeaseState) string {
	switch state {
	case v1alpha1.StateRetained:
		return "the lease ends with its retention, or when an operator deletes it"
	case v1alpha1.StateWarm:
		return "its agent releases the lease"
	default:
		return "the lease ends with its holder"
	}
}

// hasLeft reports whether the pool no longer has the address. It is false for an invalid pool.
func hasLeft(lease *v1alpha1.IPLease, pool *v1alpha1.IPPool) bool {
	set, err := poolset.Addresses(pool)
	return err == nil && !set.Contains(lease.Spec.Addr())
}
