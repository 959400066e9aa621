// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"fmt"

	"github.com/fenceline/fenceline/bpf/attach"
)

// preparedGuard is a pair of programs that was loaded ahead.
type preparedGuard struct {
	record   Record
	programs attach.Programs
}

// stock are the programs of guards that were loaded ahead, by slot.
type stock struct {
	slots    Slots
	prepared map[uint32]preparedGuard
	closed   bool
}

// close closes the programs. It needs the lock.
func (st *stock) close() {
	for slot, p := range st.prepared {
		p.programs.Close()
		delete(st.prepared, slot)
	}
	st.closed = true
}

// PrepareGuard loads the programs of a guard ahead, since the verifier takes tens of milliseconds.
// It keeps them until StageGuard, DropGuard or Close. It uses only Slot, Segment and
// Verify. Another call for the slot replaces the programs.
func (st *stock) PrepareGuard(g Guard) error {
	if err := st.slots.Check(g.Slot); err != nil {
		return fmt.Errorf("prepare guard of slot %d: %w", g.Slot, err)
	}
	record := g.record(0)
	programs, err := st.slots.Load(g.Slot, record)
	if err != nil {
		return fmt.Errorf("prepare guard of slot %d: %w", g.Slot, err)
	}
	st.slots.Lock()
	defer st.slots.Unlock()
	if st.closed {
		programs.Close()
		return nil
	}
	st.prepared[g.Slot].programs.Close()
	st.prepared[g.Slot] = preparedGuard{record, programs}
	return nil
}

// DropGuard unloads the programs that PrepareGuard has loaded for a slot, unless StageGuard has
// taken them.
func (st *stock) DropGuard(slot uint32) {
	st.slots.Lock()
	p := st.prepared[slot]
	delete(st.prepared, slot)
	st.slots.Unlock()
	p.programs.Close()
}

// take returns the programs of a guard, loaded ahead or now. The caller closes them.
func (st *stock) take(g Guard) (attach.Programs, error) {
	record := g.record(0)
	st.slots.Lock()
	p, ok := st.prepared[g.Slot]
	delete(st.prepared, g.Slot)
	st.slots.Unlock()
	if ok && p.record == record {
		return p.programs, nil
	}
	p.programs.Close()
	return st.slots.Load(g.Slot, record)
}
