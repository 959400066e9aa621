package bpf

import "fmt"

// preparedGuard is a pair of programs that was loaded before anybody asked for it.
type preparedGuard struct {
	record   observerSlot
	programs pair
}

// PrepareGuard loads the programs of a guard ahead, which takes the verifier tens of milliseconds, and keeps them
// until StageGuard takes them or the kernel is closed. Only Slot, Segment and the two options matter. Preparing a
// slot again replaces what was prepared.
func (k *Kernel) PrepareGuard(g Guard) error {
	if err := checkSlot(g.Slot); err != nil {
		return fmt.Errorf("prepare guard of slot %d: %w", g.Slot, err)
	}
	record := g.record(0)
	programs, err := k.loadGuardPair(g.Slot, record)
	if err != nil {
		return fmt.Errorf("prepare guard of slot %d: %w", g.Slot, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		programs.close()
		return nil
	}
	k.stock[g.Slot].programs.close()
	k.stock[g.Slot] = preparedGuard{record, programs}
	return nil
}

// DropGuard unloads what PrepareGuard has loaded for a slot, unless StageGuard has taken it.
func (k *Kernel) DropGuard(slot uint32) {
	k.mu.Lock()
	p := k.stock[slot]
	delete(k.stock, slot)
	k.mu.Unlock()
	p.programs.close()
}

// takePrepared returns the programs of a guard, loaded ahead or now. They are the caller's to close.
func (k *Kernel) takePrepared(g Guard) (pair, error) {
	record := g.record(0)
	k.mu.Lock()
	p, ok := k.stock[g.Slot]
	delete(k.stock, g.Slot)
	k.mu.Unlock()
	if ok && p.record == record {
		return p.programs, nil
	}
	p.programs.close()
	return k.loadGuardPair(g.Slot, record)
}
