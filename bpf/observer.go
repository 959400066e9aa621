// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
)

// The flags of the parents map.
const (
	parentBridgePort = uint16(observerParentFlagPARENT_BRIDGE_PORT)
	parentExclusive  = uint16(observerParentFlagPARENT_EXCLUSIVE)
)

// ErrNoDevice is returned if the interface or its network namespace does not exist.
var ErrNoDevice = attach.ErrNoDevice

// Observers are the observers on the parents of this node, which are in the calling thread's network
// namespace. They are before all other programs there.
type Observers struct {
	mu     *sync.Mutex
	maps   *observerMaps
	locals *locals
	pins   attach.Dir
	// noTCX: the observers are in filters. Attach sets it on a kernel without tcx.
	noTCX *atomic.Bool
	// load loads the programs of a parent.
	load func(parent uint32) (attach.Programs, error)
}

// Attach attaches the observer to the parent with this ifindex in the calling thread's
// network namespace, at the head of both chains. Another call updates the parent's description,
// attaches a missing program and moves the observer back to the head. It returns ErrNoDevice if
// there is no such interface.
func (o *Observers) Attach(parent int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.describe(parent)
	if err == nil {
		err = o.put(parent)
	}
	if err != nil {
		return fmt.Errorf("attach observer to ifindex %d: %w", parent, err)
	}
	return nil
}

// describe writes the parent's MAC, and whether it is a bridge port, for the programs.
func (o *Observers) describe(parent int) error {
	dev, err := netlink.LinkByIndex(parent)
	if err != nil {
		return attach.NoDevice(fmt.Errorf("look up the parent: %w", err))
	}
	var p observerParent
	p.Mac.Part = macLayout(dev.Attrs().HardwareAddr)
	bridged, err := isBridgePort(dev)
	if err != nil {
		return err
	}
	if bridged {
		p.Flags |= parentBridgePort
	}
	var before observerParent
	known, err := lookup(o.maps.Parents, uint32(parent), &before)
	if err != nil {
		return fmt.Errorf("read parent: %w", err)
	}
	p.Flags |= before.Flags & parentExclusive
	if !known { // it may take the place of one that was made again
		if err := o.forgetGone(); err != nil {
			return err
		}
	}
	if err := o.maps.Parents.Put(uint32(parent), p); err != nil {
		return fmt.Errorf("describe parent: %w", err)
	}
	if !known || before != p {
		if err := errors.Join(o.tellMACs(), o.locals.tell()); err != nil {
			return err
		}
	}
	err = o.maps.Hearing.Update(uint32(parent), uint64(0), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("create hearing: %w", err)
	}
	return nil
}

// put puts the observer at the head of both chains of a parent, where it is not there already.
func (o *Observers) put(parent int) error {
	if o.noTCX.Load() {
		return o.putFilters(parent)
	}
	err := o.putLinks(parent)
	if errors.Is(err, ebpf.ErrNotSupported) {
		o.noTCX.Store(true)
		return o.putFilters(parent)
	}
	return err
}

func (o *Observers) putLinks(parent int) error {
	links := o.pins.Observer(parent)
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
			if programs, err = o.load(uint32(parent)); err != nil {
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

// reload replaces the programs of all observers by this version's, in place.
func (o *Observers) reload() error {
	parents, err := o.pins.Observers()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		err := o.pins.Observer(int(parent)).Reload(func() (attach.Programs, error) { return o.load(parent) })
		if err == nil {
			err = o.reloadFilters(int(parent))
		}
		if err != nil {
			return fmt.Errorf("reload observer of segment %d: %w", parent, err)
		}
	}
	return nil
}

// Attached returns the parents to which an observer was attached, and whether both of its programs
// are still at the head of an existing device's chains.
func (o *Observers) Attached() (map[int]bool, error) {
	parents, err := o.pins.Observers()
	if err != nil {
		return nil, err
	}
	attached := map[int]bool{}
	for _, parent := range parents {
		// A parent that cannot be queried, for instance because it was moved, counts as not observed.
		attached[int(parent)] = o.first(int(parent))
	}
	return attached, nil
}

// first reports whether both of the observer's programs are the first to see the parent's frames.
func (o *Observers) first(parent int) bool {
	if o.noTCX.Load() {
		ids, err := attach.FirstFilters(parent)
		return err == nil && !slices.Contains(ids[:], 0)
	}
	for _, d := range attach.Directions {
		first, err := o.pins.Observer(parent).First(d, parent)
		if err != nil || !first {
			return false
		}
	}
	return true
}

// removeAllFilters removes the filters of all observers.
func (o *Observers) removeAllFilters() error {
	parents, err := o.pins.Observers()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		if err := o.removeFilters(int(parent)); err != nil {
			return err
		}
	}
	return nil
}

// detach takes the observer, if there is one, off a parent and forgets it. It needs mu.
func (o *Observers) detach(parent int) error {
	delete(o.locals.trusted, uint32(parent))
	isOf := func(at uint64, of uint32) bool { return of == uint32(parent) || at>>32 == uint64(parent) }
	return errors.Join(o.removeFilters(parent), o.pins.Observer(parent).Remove(), o.forgetUplinks(isOf),
		deleteEntry(o.maps.Parents, uint32(parent)), deleteEntry(o.maps.Hearing, uint32(parent)))
}

// isGone reports whether a parent was deleted. A parent that was moved to another namespace keeps its
// links and its pods.
func (o *Observers) isGone(parent int) (bool, error) {
	gone, err := o.pins.Observer(parent).Gone()
	if err != nil || !gone {
		return false, err
	}
	if _, err = netlink.LinkByIndex(parent); attach.IsGone(err) {
		return true, nil
	}
	return false, err
}

// isBridgePort reports whether a parent is a port of a bridge.
func isBridgePort(dev netlink.Link) (bool, error) {
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
