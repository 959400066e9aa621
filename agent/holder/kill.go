package holder

import (
	"context"
	"fmt"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// KillHolder reads a lease past the cache and, if it is Quarantined and names a
// predecessor, kills every slot of this node that speaks for its address. dead
// tells that the last holder was one of this session: that is positive proof (R8).
func (h *Holders) KillHolder(ctx context.Context, name string) (l *v1alpha1.IPLease, dead bool, err error) {
	defer h.leases.lock(name)()
	l, err = h.Leases.Get(ctx, name)
	if err != nil || l.Spec.State != v1alpha1.StateQuarantined || !HasPredecessor(&l.Spec) {
		return l, false, err
	}
	return l, h.endedHere(l), h.killSpeakers(l, 0)
}

// killSpeakers kills every slot of this node, but the new holder's own, that
// speaks for a lease's address: by the kernel's knowledge or by the journal's.
func (h *Holders) killSpeakers(l *v1alpha1.IPLease, own uint32) error {
	for _, e := range h.Journal.All() {
		for _, address := range e.Addresses {
			if address.LeaseName != l.Name || e.Slot == 0 || e.Slot == own || e.Session != h.Session {
				continue
			}
			// It has not spoken yet. A take-over that is under way is spared, but
			// not the ADD of the very holder: it may be about to speak.
			if address.Token == 0 && !isHolder(&l.Spec, e) {
				continue
			}
			h.overtaken.add(attachmentOf(e))
			if err := h.Kernel.KillSlot(e.Slot); err != nil {
				return fmt.Errorf("kill slot %d, whose entry holds %s: %w", e.Slot, address.Addr, err)
			}
		}
	}
	network, addr, err := v1alpha1.ParseLeaseName(l.Name)
	if err != nil {
		return err
	}
	leases, err := h.Kernel.Leases()
	if err != nil {
		return fmt.Errorf("read the kernel's leases: %w", err)
	}
	for key, installed := range leases {
		if key.Addr != addr || installed.Network != h.network(network) || installed.Slot == 0 || installed.Slot == own {
			continue
		}
		if err := h.Kernel.KillSlot(installed.Slot); err != nil {
			return fmt.Errorf("kill slot %d, which spoke for %s: %w", installed.Slot, key, err)
		}
	}
	return nil
}

// isHolder tells whether an entry is of the container that a lease names.
func isHolder(s *v1alpha1.IPLeaseSpec, e *journal.Entry) bool {
	return s.Holder != nil && s.Holder.ContainerID == e.ContainerID && s.Holder.Interface == e.Interface
}

// endedHere tells whether the last holder of a lease was bound by this session.
// Once its slots are killed, or were by its own DEL, it is proven silent.
func (h *Holders) endedHere(l *v1alpha1.IPLease) bool {
	if p := l.Spec.Previous; p != nil {
		return p.Node == h.Node && p.Session == h.Session
	}
	return l.Spec.State == v1alpha1.StateBound && l.Spec.NodeName == h.Node && l.Spec.Session == h.Session
}

// uninstall removes an address from the kernel, if it is still this slot's.
func (h *Holders) uninstall(key bpf.Key, slot uint32) error {
	h.installing.Lock()
	defer h.installing.Unlock()
	present, installed, err := h.Kernel.Lease(key)
	if err != nil || !installed || present.Slot != slot {
		return err
	}
	if err := h.Kernel.RemoveLease(key); err != nil {
		return fmt.Errorf("remove the lease of %s and slot %d: %w", key, slot, err)
	}
	return nil
}
