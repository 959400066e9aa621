// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
)

// Others returns the programs of others that see the frames of a parent where its observer does: in
// tcx, or without it among the filters of clsact. A missing parent has none. Attach must not run
// meanwhile: an observer that moves has two links for a moment, and one of them has no pin.
func (p *Parents) Others(parent int) (all []string, err error) {
	if p.NoTCX.Load() {
		err = attach.OnParent(parent, func(_ *attach.Device, d attach.Direction, filters []netlink.Filter) error {
			for _, f := range filters {
				if !attach.IsNamed(f, attach.ObserverFilter) {
					all = append(all, fmt.Sprintf("%s filter with priority %d (%s)", d.Name, f.Attrs().Priority, f.Type()))
				}
			}
			return nil
		})
		return all, err
	}
	for _, d := range attach.Directions {
		names, err := p.Pins.Observer(parent).Others(d, parent)
		if err != nil && !attach.IsGone(err) {
			return nil, err
		}
		all = append(all, names...)
	}
	return all, nil
}

// Blocked returns why something else is in the place of a parent's observer, and what to do; nil if
// nothing is. With tcx there is no such place. A missing parent has nothing.
func (p *Parents) Blocked(parent int) error {
	if !p.NoTCX.Load() {
		return nil
	}
	dev, err := attach.OpenParent(parent)
	if err != nil {
		return err
	}
	defer dev.Close()
	if err := dev.Blocked(); !attach.IsGone(err) {
		return err
	}
	return nil
}
