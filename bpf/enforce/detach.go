// SPDX-License-Identifier: Apache-2.0

package enforce

import "fmt"

// KillSlot makes the slot's guard drop every frame in both directions, and the parent's observer
// every frame that bypasses the guard. It holds until the guard is detached.
func (gs *Guards) KillSlot(slot uint32) error {
	gs.slots.Lock()
	defer gs.slots.Unlock()
	if err := gs.stages.kill(slot); err != nil {
		return fmt.Errorf("kill slot %d: %w", slot, err)
	}
	return nil
}

// DetachGuard removes the guard from its device and frees the slot. A slot without a guard is no
// error. The device must be down, deleted or no longer the pod's, since nothing restricts it after
// the call. If the slot still guards a host link, the slot is killed instead, and SweepGuards frees
// it when the link is gone.
func (gs *Guards) DetachGuard(slot uint32) error {
	if err := gs.slots.Check(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	defer gs.locks.lock(slot)()
	if err := gs.detachGuard(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	gs.slots.Lock()
	defer gs.slots.Unlock()
	return gs.slots.Settle()
}

func (gs *Guards) detachGuard(slot uint32) error {
	if err := gs.stages.remove(slot); err != nil {
		return err
	}
	if err := gs.dir.Guard(slot).Remove(); err != nil {
		return err
	}
	linked, err := gs.hostLinks.has(slot)
	if err != nil {
		return err
	}
	gs.slots.Lock()
	defer gs.slots.Unlock()
	if linked {
		return gs.stages.kill(slot)
	}
	if err := gs.slots.Free(slot); err != nil {
		return err
	}
	delete(gs.stages.unrecorded, slot)
	delete(gs.hostLinks.links, slot)
	return nil
}
