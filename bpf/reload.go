// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"

	"github.com/fenceline/fenceline/bpf/attach"
)

// reload puts this version's programs into every link that an earlier process has pinned, and into
// every filter of an observer or a host link, if the device exists. If a crash has left only one half of a pair, the
// other half is missing until the next attach.
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
		load := func() (attach.Programs, error) { return k.loadGuardPair(slot, s) }
		if err := reloadPair(k.dir.guard(slot), load); err != nil {
			return fmt.Errorf("reload guard of slot %d: %w", slot, err)
		}
	}
	if err := k.reloadHostLinks(); err != nil {
		return fmt.Errorf("reload the guards of host links: %w", err)
	}
	parents, err := k.dir.observers()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		load := func() (attach.Programs, error) { return k.loadObserverPair(parent) }
		if err := reloadPair(k.dir.observer(int(parent)), load); err != nil {
			return fmt.Errorf("reload observer of segment %d: %w", parent, err)
		}
		if err := k.reloadObserverFilters(int(parent)); err != nil {
			return fmt.Errorf("reload observer of segment %d: %w", parent, err)
		}
	}
	return nil
}

func reloadPair(pins attach.Pins, load func() (attach.Programs, error)) error {
	gone, err := pins.Gone()
	if err != nil || gone {
		return err
	}
	programs, err := load()
	if err != nil {
		return err
	}
	defer programs.Close()
	for _, d := range attach.Directions {
		ifindex, ok, err := pins.On(d)
		if err != nil {
			return err
		}
		if !ok || ifindex == 0 {
			continue
		}
		if err := pins.Replace(d, programs[d.Name]); err != nil {
			if gone, e := pins.Gone(); e == nil && gone {
				return nil // the device was deleted meanwhile
			}
			return err
		}
	}
	return nil
}
