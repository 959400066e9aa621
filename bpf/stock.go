// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/fenceline/fenceline/bpf/attach"
)

// preparedGuard is a pair of programs that was loaded ahead.
type preparedGuard struct {
	record   observerSlot
	programs attach.Programs
}

// PrepareGuard loads the programs of a guard ahead, since the verifier takes tens of milliseconds.
// It keeps them until StageGuard, DropGuard or Close. It uses only Slot, Segment and
// Verify. Another call for the slot replaces the programs.
func (gs *guards) PrepareGuard(g Guard) error {
	if err := checkSlot(g.Slot); err != nil {
		return fmt.Errorf("prepare guard of slot %d: %w", g.Slot, err)
	}
	record := g.record(0)
	programs, err := gs.loadGuardPair(g.Slot, record)
	if err != nil {
		return fmt.Errorf("prepare guard of slot %d: %w", g.Slot, err)
	}
	gs.tables.mu.Lock()
	defer gs.tables.mu.Unlock()
	if gs.closed {
		programs.Close()
		return nil
	}
	gs.stock[g.Slot].programs.Close()
	gs.stock[g.Slot] = preparedGuard{record, programs}
	return nil
}

// DropGuard unloads the programs that PrepareGuard has loaded for a slot, unless StageGuard has
// taken them.
func (gs *guards) DropGuard(slot uint32) {
	gs.tables.mu.Lock()
	p := gs.stock[slot]
	delete(gs.stock, slot)
	gs.tables.mu.Unlock()
	p.programs.Close()
}

// takePrepared returns the programs of a guard, loaded ahead or now. The caller closes them.
func (gs *guards) takePrepared(g Guard) (attach.Programs, error) {
	record := g.record(0)
	gs.tables.mu.Lock()
	p, ok := gs.stock[g.Slot]
	delete(gs.stock, g.Slot)
	gs.tables.mu.Unlock()
	if ok && p.record == record {
		return p.programs, nil
	}
	p.programs.Close()
	return gs.loadGuardPair(g.Slot, record)
}
