package bpf

import "fmt"

// The gate's two counts; gate.h says how they work together.
const (
	gateRaised  uint32 = 0
	gateSettled uint32 = 1
	// gateNever is a count of fences that is never reached.
	gateNever = ^uint64(0)
)

// openGate makes the data path look addresses up, whatever the kernel has fenced.
func (k *Kernel) openGate() error {
	if err := k.maps.Gate.Put(gateSettled, gateNever); err != nil {
		return fmt.Errorf("open the gate: %w", err)
	}
	return nil
}

// openGateIfClaimed comes before a lease that is fenced from its first moment: a newer claim is remembered.
func (k *Kernel) openGateIfClaimed(key Key, l Lease) error {
	s, _, err := k.State(key)
	if err != nil || !l.held() || s.MaxToken <= l.Token {
		return err
	}
	return k.openGate()
}

// settle shuts the gate if nothing is fenced. A fence that comes while it looks keeps the gate open.
func (k *Kernel) settle() error {
	if err := k.settleUnless(k.gateNeeded); err != nil {
		return fmt.Errorf("settle the gate: %w", err)
	}
	return nil
}

// settleUnless writes the count of fences from before it looked: one that comes while it looks makes them differ.
func (k *Kernel) settleUnless(gateNeeded func() (bool, error)) error {
	var raised, settled uint64
	if err := k.maps.Gate.Lookup(gateRaised, &raised); err != nil {
		return err
	}
	if err := k.maps.Gate.Lookup(gateSettled, &settled); err != nil {
		return err
	}
	if raised == settled {
		return nil
	}
	needed, err := gateNeeded()
	if err != nil || needed {
		return err
	}
	return k.maps.Gate.Put(gateSettled, raised)
}

// gateNeeded reports whether an address is fenced or a dead slot may still have a way around its guard. It ends at
// the first that is, so that a node under a wave of claims does not read all its leases for each.
func (k *Kernel) gateNeeded() (bool, error) {
	var key observerLeaseKey
	var l observerLease
	it := k.maps.Leases.Iterate()
	for it.Next(&key, &l) {
		if needed, err := k.leaseNeedsGate(key, l); err != nil || needed {
			return needed, err
		}
	}
	if err := it.Err(); err != nil {
		return false, err
	}
	slots, err := k.guarded()
	if err != nil {
		return false, err
	}
	for _, slot := range slots {
		if s, err := k.slot(slot); err != nil || s.Status == slotDead {
			return err == nil, err
		}
	}
	return false, nil
}

func (k *Kernel) leaseNeedsGate(key observerLeaseKey, l observerLease) (bool, error) {
	if l.Slot == 0 {
		return false, nil
	}
	var st observerState
	if _, err := lookup(k.maps.States, key, &st); err != nil || st.Max > l.Token {
		return err == nil, err
	}
	s, err := k.slot(l.Slot)
	return s.Status == slotDead, err
}
