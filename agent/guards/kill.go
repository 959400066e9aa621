// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"fmt"
	"net/netip"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/segment/claim"
)

// Kill kills the slot of an entry: from then on its interface is mute.
func (g *Guards) Kill(e *journal.Entry) error {
	if err := g.Kernel.KillSlot(e.Slot); err != nil {
		return fmt.Errorf("kill slot %d of container %s: %w", e.Slot, e.ContainerID, err)
	}
	return nil
}

// Dead reports whether a slot was killed and not swept since.
func (g *Guards) Dead(slot uint32) (bool, error) { return g.Kernel.SlotDead(slot) }

// Silenced reports whether the interface of an entry may send from none of its addresses any more: its
// slot is dead, or newer claims were heard for all of them. An address that waits behind another holder
// is not silenced: it was never used.
func (g *Guards) Silenced(e *journal.Entry) (bool, error) {
	if dead, err := g.Dead(e.Slot); err != nil || dead {
		return dead, err
	}
	for _, address := range e.Addresses {
		fenced, err := g.Fenced(e, address)
		if err != nil || !fenced || address.Behind != 0 {
			return false, err
		}
	}
	return len(e.Addresses) > 0, nil
}

// KillUsers kills the slots that may use an address of a network by the kernel's leases, except one
// slot.
func (g *Guards) KillUsers(network string, addr netip.Addr, except uint32) error {
	leases, err := g.Leases()
	if err != nil {
		return err
	}
	for key, l := range leases {
		if key.Addr != addr || l.Network != claim.Network(g.Cluster, network) || l.Slot == 0 || l.Slot == except {
			continue
		}
		if err := g.Kernel.KillSlot(l.Slot); err != nil {
			return fmt.Errorf("kill slot %d, which may use %s: %w", l.Slot, key, err)
		}
	}
	return nil
}
