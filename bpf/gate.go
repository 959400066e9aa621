// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// The gate's two counts. gate.h documents the protocol.
const (
	gateRaised  uint32 = 0
	gateSettled uint32 = 1
	// gateNever is a count that the fences never reach.
	gateNever = ^uint64(0)
)

// gate is the gate of the checks (gate.h).
type gate struct {
	maps  *observerMaps
	slots *Slots
	// guarded returns the slots that guard a device. It needs mu.
	guarded func() ([]uint32, error)
}

// open makes the data path look up addresses even if nothing is fenced.
func (g *gate) open() error {
	if err := g.maps.Gate.Put(gateSettled, gateNever); err != nil {
		return fmt.Errorf("open the gate: %w", err)
	}
	return nil
}

// settle shuts the gate if nothing is fenced. A fence during the check keeps the gate open.
func (g *gate) settle() error {
	if err := g.settleUnless(g.isNeeded); err != nil {
		return fmt.Errorf("settle the gate: %w", err)
	}
	return nil
}

// settleUnless reads the count of fences before the check. A fence meanwhile keeps the gate open.
func (g *gate) settleUnless(gateNeeded func() (bool, error)) error {
	var raised, settled uint64
	if err := g.maps.Gate.Lookup(gateRaised, &raised); err != nil {
		return err
	}
	if err := g.maps.Gate.Lookup(gateSettled, &settled); err != nil {
		return err
	}
	if raised == settled {
		return nil
	}
	needed, err := gateNeeded()
	if err != nil || needed {
		return err
	}
	return g.maps.Gate.Put(gateSettled, raised)
}

// isNeeded reports whether an address is fenced or a slot is dead. The pod of a dead slot may
// bypass its guard. It stops at the first one: under a wave of claims it must not read all leases
// for each claim.
func (g *gate) isNeeded() (bool, error) {
	var key observerLeaseKey
	var l observerLease
	it := g.maps.Leases.Iterate()
	for it.Next(&key, &l) {
		if needed, err := g.isNeededBy(key, l); err != nil || needed {
			return needed, err
		}
	}
	if err := it.Err(); err != nil {
		return false, err
	}
	slots, err := g.guarded()
	if err != nil {
		return false, err
	}
	for _, slot := range slots {
		if s, err := g.slots.read(slot); err != nil || s.Status == slotDead {
			return err == nil, err
		}
	}
	return false, nil
}

func (g *gate) isNeededBy(key observerLeaseKey, l observerLease) (bool, error) {
	if l.Slot == 0 {
		return false, nil
	}
	var st observerState
	if _, err := lookup(g.maps.States, key, &st); err != nil || st.state().Fences(l.lease()) {
		return err == nil, err
	}
	s, err := g.slots.read(l.Slot)
	return s.Status == slotDead, err
}
