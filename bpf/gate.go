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

// openGate makes the data path look up addresses even if nothing is fenced.
func (t *tables) openGate() error {
	if err := t.maps.Gate.Put(gateSettled, gateNever); err != nil {
		return fmt.Errorf("open the gate: %w", err)
	}
	return nil
}

// openGateIfClaimed opens the gate before the installation of a lease for which the kernel has
// already heard a newer claim: such a lease is fenced at once.
func (t *tables) openGateIfClaimed(key Key, l Lease) error {
	s, _, err := t.State(key)
	if err != nil || !l.held() || !s.Fences(l) {
		return err
	}
	return t.openGate()
}

// settle shuts the gate if nothing is fenced. A fence during the check keeps the gate open.
func (t *tables) settle() error {
	if err := t.settleUnless(t.gateNeeded); err != nil {
		return fmt.Errorf("settle the gate: %w", err)
	}
	return nil
}

// settleUnless reads the count of fences before the check. A fence meanwhile keeps the gate open.
func (t *tables) settleUnless(gateNeeded func() (bool, error)) error {
	var raised, settled uint64
	if err := t.maps.Gate.Lookup(gateRaised, &raised); err != nil {
		return err
	}
	if err := t.maps.Gate.Lookup(gateSettled, &settled); err != nil {
		return err
	}
	if raised == settled {
		return nil
	}
	needed, err := gateNeeded()
	if err != nil || needed {
		return err
	}
	return t.maps.Gate.Put(gateSettled, raised)
}

// gateNeeded reports whether an address is fenced or a slot is dead. The pod of a dead slot may
// bypass its guard. It stops at the first one: under a wave of claims it must not read all leases
// for each claim.
func (t *tables) gateNeeded() (bool, error) {
	var key observerLeaseKey
	var l observerLease
	it := t.maps.Leases.Iterate()
	for it.Next(&key, &l) {
		if needed, err := t.leaseNeedsGate(key, l); err != nil || needed {
			return needed, err
		}
	}
	if err := it.Err(); err != nil {
		return false, err
	}
	slots, err := t.guardedSlots()
	if err != nil {
		return false, err
	}
	for _, slot := range slots {
		if s, err := t.slot(slot); err != nil || s.Status == slotDead {
			return err == nil, err
		}
	}
	return false, nil
}

func (t *tables) leaseNeedsGate(key observerLeaseKey, l observerLease) (bool, error) {
	if l.Slot == 0 {
		return false, nil
	}
	var st observerState
	if _, err := lookup(t.maps.States, key, &st); err != nil || st.state().Fences(l.lease()) {
		return err == nil, err
	}
	s, err := t.slot(l.Slot)
	return s.Status == slotDead, err
}
