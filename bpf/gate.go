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

// settle shuts the gate if nothing is fenced. A fence that comes while it looks keeps the gate open.
func (k *Kernel) settle() error {
	if err := k.trySettle(); err != nil {
		return fmt.Errorf("settle the gate: %w", err)
	}
	return nil
}

func (k *Kernel) trySettle() error {
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
	needed, err := k.gateNeeded()
	if err != nil || needed {
		return err
	}
	return k.maps.Gate.Put(gateSettled, raised)
}

// gateNeeded reports whether an address is fenced or a dead slot may still have a way around its guard.
func (k *Kernel) gateNeeded() (bool, error) {
	leases, err := k.Leases()
	if err != nil {
		return false, err
	}
	for key, l := range leases {
		if !l.held() {
			continue
		}
		if fenced, err := k.Fenced(key); err != nil || fenced {
			return fenced, err
		}
		if s, err := k.slot(l.Slot); err != nil || s.Status == slotDead {
			return err == nil, err
		}
	}
	slots, err := k.dir.guards()
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
