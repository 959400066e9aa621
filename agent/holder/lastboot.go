// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"sync"

	"github.com/fenceline/fenceline/agent/session"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// lastBoot holds the part of this node's leases that is from before its last boot. Safe for
// concurrent use.
type lastBoot struct {
	mu sync.Mutex
	// interfaces are the interfaces of pods that had an address then.
	interfaces map[podInterface]bool
}

type podInterface struct{ podUID, ifname string }

// has reports whether an interface of a pod had an address before the last boot.
func (b *lastBoot) has(podUID, ifname string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.interfaces[podInterface{podUID, ifname}]
}

func (b *lastBoot) add(holder *v1alpha1.Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.interfaces == nil {
		b.interfaces = map[podInterface]bool{}
	}
	b.interfaces[podInterface{holder.PodUID, holder.Interface}] = true
}

// RememberLastBoot records that an interface had an address before the last boot: its next ADD
// looks for the lease.
func (h *Holders) RememberLastBoot(holder *v1alpha1.Holder) { h.lastBoot.add(holder) }

// IsOfLastBoot reports whether a lease is bound to a pod that ended with the last
// boot of this node.
func (h *Holders) IsOfLastBoot(s *v1alpha1.IPLeaseSpec) bool {
	return s.State == v1alpha1.StateBound && s.NodeName == h.Node && s.Holder != nil &&
		!session.SameBoot(s.Session, h.Session)
}
