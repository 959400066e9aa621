// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
)

// KillSlot makes the guard of an entry drop every frame.
func (g *Guards) KillSlot(e *attachment.Entry) error {
	if err := g.Kernel.Guards.Kill(e.Slot); err != nil {
		return fmt.Errorf("kill slot %d of container %s: %w", e.Slot, e.ContainerID, err)
	}
	return nil
}

// Dead reports whether a slot was killed and not swept since.
func (g *Guards) Dead(slot uint32) (bool, error) { return g.Kernel.Slots.Dead(slot) }

// Silenced reports whether the interface of an entry may send from none of its addresses any more:
// its slot is dead, or newer claims were heard for all of them. An address that waits behind
// another holder is not silenced: it was never used. If only its PF can silence a VF, the VF must be
// off as soon as one of its addresses is fenced, and without its guard.
func (g *Guards) Silenced(e *attachment.Entry) (bool, error) {
	alone := g.Alone(e)
	if alone && (e.Mute || g.isMissing(e)) {
		return true, nil
	}
	if !e.Unguarded {
		if dead, err := g.Dead(e.Slot); err != nil || dead {
			return dead, err
		}
	}
	for _, address := range e.Addresses {
		fenced, err := g.Leases.Fenced(e, address)
		if err != nil {
			return false, err
		}
		if silenced := fenced && (alone || address.Behind == 0); silenced == alone {
			return alone, nil
		}
	}
	return !alone && len(e.Addresses) > 0, nil
}

// errUnguarded: the entry that names the VF is lost.
var errUnguarded = errors.New("it has no guard, and nothing shows that its VF is off")

// KillUsers kills the slots with a kernel lease of an address of a network, except one slot.
func (g *Guards) KillUsers(network string, addr netip.Addr, except uint32) error {
	leases, err := g.Leases.All()
	if err != nil {
		return err
	}
	for key, l := range leases {
		if key.Addr != addr || l.Network != claim.Network(g.Cluster, network) || l.Slot == 0 || l.Slot == except {
			continue
		}
		// The program in a pod does not run before the answer of its ADD, and has ended before that of its DEL.
		isUnanswered := slices.ContainsFunc(g.Attachments.All(), func(e *attachment.Entry) bool {
			return e.Slot == l.Slot && e.Session == g.Session && e.Phase != attachment.Bound && !e.Unguarded
		})
		err := errUnguarded
		if isUnanswered || l.Flags&bpf.FlagUnguarded == 0 {
			err = g.Kernel.Guards.Kill(l.Slot)
		}
		if err != nil {
			return fmt.Errorf("kill slot %d, which may use %s: %w", l.Slot, key, err)
		}
	}
	return nil
}
