// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// parentRecords returns the descriptions of parents in the map, by ifindex. It needs mu.
func (t *tables) parentRecords() (map[uint32]observerParent, error) {
	all, err := entriesOf[uint32, observerParent](t.maps.Parents)
	if err != nil {
		return nil, fmt.Errorf("list parents: %w", err)
	}
	return all, nil
}

// forgetParents removes the descriptions of deleted parents from the map, and their programs from the
// kernel. Otherwise they would fill both, since each new device gets another ifindex.
func (o *observers) forgetParents() error {
	all, err := o.tables.parentRecords()
	if err != nil {
		return err
	}
	for parent := range all {
		gone, err := o.parents.Gone(int(parent))
		if err == nil && gone {
			err = o.detachObserver(int(parent))
		}
		if err != nil {
			return fmt.Errorf("forget the parent with ifindex %d: %w", parent, err)
		}
	}
	return nil
}

// tellMACs writes the MACs of this node's parents into a map for the programs. Two parents on one
// segment hear each other, which proves nothing about other nodes (R2).
func (o *observers) tellMACs() error {
	parents, err := o.tables.parentRecords()
	if err != nil {
		return err
	}
	wanted := map[[3]uint16]bool{}
	for _, p := range parents {
		wanted[p.Mac.Part] = true
	}
	present, err := entriesOf[[3]uint16, uint8](o.tables.maps.OwnMacs)
	if err != nil {
		return fmt.Errorf("list MACs of parents: %w", err)
	}
	for mac := range present {
		if !wanted[mac] {
			if err := deleteEntry(o.tables.maps.OwnMacs, mac); err != nil {
				return fmt.Errorf("remove a parent's MAC: %w", err)
			}
		}
	}
	for mac := range wanted {
		if err := o.tables.maps.OwnMacs.Put(mac, uint8(1)); err != nil {
			return fmt.Errorf("add a parent's MAC: %w", err)
		}
	}
	return nil
}
