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

// remarkOn returns the message that a lease should carry which the controller
// leaves alone: what is wrong with the record, or why nothing is done. Where an
// agent has written, its message stays. A Quarantined lease's message is its
// verifier's answer, so it is never touched.
func remarkOn(lease *v1alpha1.IPLease, pool *v1alpha1.IPPool, a Action) string {
	message := lease.Spec.Message
	if lease.Spec.State == v1alpha1.StateQuarantined || (message != "" && !strings.HasPrefix(message, remarkPrefix)) {
		return message
	}
	switch {
	case pool == nil:
		return fmt.Sprintf("%spool %s does not exist; the lease ends with its holder", remarkPrefix, lease.Spec.Pool)
	case a.Tell:
		return remarkPrefix + a.Why
	case hasLeft(lease, pool):
		return fmt.Sprintf("%sthe address is not one of pool %s any more; the lease ends with its holder", remarkPrefix, pool.Name)
	default:
		return ""
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
