// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"slices"
)

// SetUplinks tells the kernel by which ports of a bridge of Open vSwitch the frames of a parent come in, with the tag of
// a VLAN. It attaches observers to these ports: they take claims there, since the daemon of Open vSwitch may be dead.
// Without tcx it does nothing, because Open vSwitch wants the qdisc of its ports.
func (o *Observers) SetUplinks(parent int, vid uint16, uplinks []int) error {
	if o.noTCX.Load() {
		return nil
	}
	var wanted []uint64
	for _, uplink := range uplinks {
		if err := o.Attach(uplink); err != nil {
			return err
		}
		wanted = append(wanted, uint64(uplink)<<32|uint64(vid))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range wanted {
		if err := o.maps.Uplinks.Put(at, uint32(parent)); err != nil {
			return fmt.Errorf("add the uplink %d of ifindex %d: %w", at>>32, parent, err)
		}
	}
	return o.forgetUplinks(func(at uint64, of uint32) bool { return of == uint32(parent) && !slices.Contains(wanted, at) })
}

// forgetUplinks removes entries of the map of uplinks. It needs mu.
func (o *Observers) forgetUplinks(stale func(at uint64, parent uint32) bool) error {
	present, err := entriesOf[uint64, uint32](o.maps.Uplinks)
	if err != nil {
		return fmt.Errorf("list uplinks: %w", err)
	}
	for at, parent := range present {
		if stale(at, parent) {
			if err := deleteEntry(o.maps.Uplinks, at); err != nil {
				return fmt.Errorf("remove the uplink %d of ifindex %d: %w", at>>32, parent, err)
			}
		}
	}
	return nil
}
