package reclaim

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// remarkPrefix tells the controller's messages from the agents'.
const remarkPrefix = "controller: "

// remark is what the controller writes on a lease that it leaves alone.
type remark struct {
	reason  v1alpha1.LeaseReason
	message string
}

// remarkOn returns what a lease should carry which the controller leaves alone:
// what is wrong with the record, how it ends, and why nothing is done. Where an
// agent has written, its words stay. A Quarantined lease's are its verifier's
// answer, so they are never touched.
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
		sentences = append(sentences, fmt.Sprintf("the address is not one of pool %s any more; %s", pool.Name, endOf(spec.State)))
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

// isRemark says whether a reason is the controller's remark, and not an agent's word.
func isRemark(reason v1alpha1.LeaseReason) bool {
	return reason == v1alpha1.ReasonPoolGone || reason == v1alpha1.ReasonOutsidePool || reason == v1alpha1.ReasonNoHolder
}

// endOf says what ends a lease that is cut off from its pool. Nothing is taken
// from a living pod, and no name loses its address, because a record is damaged.
func endOf(state v1alpha1.LeaseState) string {
	switch state {
	case v1alpha1.StateRetained:
		return "the lease ends with its retention, or when somebody deletes it"
	case v1alpha1.StateWarm:
		return "its agent ends the lease"
	default:
		return "the lease ends with its holder"
	}
}

// hasLeft says whether the pool does not have the address any more. A pool that
// is not valid tells nothing.
func hasLeft(lease *v1alpha1.IPLease, pool *v1alpha1.IPPool) bool {
	addr, err := netip.ParseAddr(lease.Spec.Address)
	if err != nil {
		return false
	}
	set, err := ipam.Addresses(pool)
	return err == nil && !set.Contains(addr)
}
