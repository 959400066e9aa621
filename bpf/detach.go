// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// Kill makes the slot's guard drop every frame in both directions, and the parent's observer
// every frame that bypasses the guard. It holds until the guard is detached.
func (gs *Guards) Kill(slot uint32) error {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if err := gs.stages.kill(slot); err != nil {
		return fmt.Errorf("kill slot %d: %w", slot, err)
	}
	return nil
}

// Detach removes the guard from its device and frees the slot. A slot without a guard is no
// error. The device must be down, deleted or no longer the pod's, since nothing restricts it after
// the call. If the slot still guards a host link, the slot is killed instead, and Sweep frees
// it when the link is gone.
func (gs *Guards) Detach(slot uint32) error {
	if err := checkSlot(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	defer gs.locks.lock(slot)()
	if err := gs.detachGuard(slot); err != nil {
		return fmt.Errorf("detach guard of slot %d: %w", slot, err)
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.gate.settle()
}

func (gs *Guards) detachGuard(slot uint32) error {
	// The observer may be judging a frame of a pod that runs on: it must find the MAC of the slot as long as it
	// found the source guard on. Links wait for such programs when they are removed.
	gs.mu.Lock()
	err := gs.slots.change(slot, func(s *observerSlot) { s.Sources = 0 })
	gs.mu.Unlock()
	if err != nil {
		return err
	}
	if err := gs.stages.remove(slot); err != nil {
		return err
	}
	if err := gs.dir.Guard(slot).Remove(); err != nil {
		return err
	}
	linked, err := gs.HostLinks.has(slot)
	if err != nil {
		return err
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if linked {
		return gs.stages.kill(slot)
	}
	if err := gs.sockets.forget(slot); err != nil { // first: nothing would look at a slot that is free
		return err
	}
	if err := gs.slots.write(slot, observerSlot{}); err != nil {
		return err
	}
	if err := gs.sources.forget(slot); err != nil {
		return err
	}
	delete(gs.stages.unrecorded, slot)
	delete(gs.HostLinks.links, slot)
	return nil
}
