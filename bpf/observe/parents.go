// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/pins"
)

// Parents are the parents with an observer, in the calling thread's network namespace.
type Parents struct {
	Pins pins.Dir
	// NoTCX: the observers are in filters. Attach sets it on a kernel without tcx.
	NoTCX *atomic.Bool
	// Load loads the programs of a parent.
	Load func(parent uint32) (attach.Programs, error)
}

// Attach puts the observer at the head of both chains of a parent, where it is not there already.
func (p *Parents) Attach(parent int) error {
	if p.NoTCX.Load() {
		return p.putFilters(parent)
	}
	err := p.putLinks(parent)
	if errors.Is(err, ebpf.ErrNotSupported) {
		p.NoTCX.Store(true)
		return p.putFilters(parent)
	}
	return err
}

func (p *Parents) putLinks(parent int) error {
	links := p.Pins.Observer(parent)
	gone, err := links.Gone()
	if err != nil {
		return err
	}
	if gone { // the kernel reuses ifindexes
		if err := links.Remove(); err != nil {
			return err
		}
	}
	var programs attach.Programs
	for _, d := range attach.Directions {
		first, err := links.First(d, parent)
		if err != nil {
			return err
		}
		if first {
			continue
		}
		if programs == nil {
			if programs, err = p.Load(uint32(parent)); err != nil {
				return err
			}
			defer programs.Close()
		}
		if err := links.Attach(d, parent, programs[d.Name]); err != nil {
			return err
		}
	}
	return nil
}

// Reload replaces the programs of all observers by this version's, in place.
func (p *Parents) Reload() error {
	parents, err := p.Pins.Observers()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		err := p.Pins.Observer(int(parent)).Reload(func() (attach.Programs, error) { return p.Load(parent) })
		if err == nil {
			err = p.reloadFilters(int(parent))
		}
		if err != nil {
			return fmt.Errorf("reload observer of segment %d: %w", parent, err)
		}
	}
	return nil
}

// Attached returns the parents to which an observer was attached, and whether both of its programs
// are still at the head of an existing device's chains.
func (p *Parents) Attached() (map[int]bool, error) {
	parents, err := p.Pins.Observers()
	if err != nil {
		return nil, err
	}
	attached := map[int]bool{}
	for _, parent := range parents {
		// A parent that cannot be queried, for instance because it was moved, counts as not observed.
		attached[int(parent)] = p.first(int(parent))
	}
	return attached, nil
}

// first reports whether both of the observer's programs are the first to see the parent's frames.
func (p *Parents) first(parent int) bool {
	if p.NoTCX.Load() {
		ids, err := attach.FirstFilters(parent)
		return err == nil && !slices.Contains(ids[:], 0)
	}
	for _, d := range attach.Directions {
		first, err := p.Pins.Observer(parent).First(d, parent)
		if err != nil || !first {
			return false
		}
	}
	return true
}

// Detach takes the observer off a parent. A missing observer is no error.
func (p *Parents) Detach(parent int) error {
	return errors.Join(p.removeFilters(parent), p.Pins.Observer(parent).Remove())
}

// RemoveFilters removes the filters of all observers.
func (p *Parents) RemoveFilters() error {
	parents, err := p.Pins.Observers()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		if err := p.removeFilters(int(parent)); err != nil {
			return err
		}
	}
	return nil
}

// Gone reports whether a parent was deleted. A parent that was moved to another namespace keeps its
// links and its pods.
func (p *Parents) Gone(parent int) (bool, error) {
	gone, err := p.Pins.Observer(parent).Gone()
	if err != nil || !gone {
		return false, err
	}
	if _, err = netlink.LinkByIndex(parent); attach.IsGone(err) {
		return true, nil
	}
	return false, err
}

// IsBridgePort reports whether a parent is a port of a bridge.
func IsBridgePort(dev netlink.Link) (bool, error) {
	index := dev.Attrs().MasterIndex
	if index == 0 {
		return false, nil
	}
	master, err := netlink.LinkByIndex(index)
	if err != nil {
		return false, fmt.Errorf("look up master %d: %w", index, err)
	}
	return master.Type() == "bridge" || master.Type() == "openvswitch", nil
}
