package bpf

import "fmt"

// reload puts this version's programs into every link that a process before has pinned, and into every observer's
// filter, whose device lives.
// A pair that was torn by a crash keeps its half; the next attach completes it.
func (k *Kernel) reload() error {
	slots, err := k.dir.guards()
	if err != nil {
		return err
	}
	for _, slot := range slots {
		s, err := k.slot(slot)
		if err != nil {
			return err
		}
		load := func() (pair, error) { return k.loadGuardPair(slot, s) }
		if err := reloadPair(k.dir.guard(slot), load); err != nil {
			return fmt.Errorf("reload guard of slot %d: %w", slot, err)
		}
	}
	parents, err := k.dir.observers()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		load := func() (pair, error) { return k.loadObserverPair(parent) }
		if err := reloadPair(k.dir.observer(int(parent)), load); err != nil {
			return fmt.Errorf("reload observer of segment %d: %w", parent, err)
		}
		if err := k.reloadObserverFilters(int(parent)); err != nil {
			return fmt.Errorf("reload observer of segment %d: %w", parent, err)
		}
	}
	return nil
}

func reloadPair(pins pinPair, load func() (pair, error)) error {
	gone, err := pins.gone()
	if err != nil || gone {
		return err
	}
	programs, err := load()
	if err != nil {
		return err
	}
	defer programs.close()
	for _, d := range directions {
		ifindex, ok, err := pins.device(d)
		if err != nil {
			return err
		}
		if !ok || ifindex == 0 {
			continue
		}
		if err := pins.replace(d, programs[d.name]); err != nil {
			if gone, e := pins.gone(); e == nil && gone {
				return nil // the device went while we were at it
			}
			return err
		}
	}
	return nil
}
