// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
)

// The flags of the parents map.
const (
	parentBridgePort = uint16(observerParentFlagPARENT_BRIDGE_PORT)
	parentStrict     = uint16(observerParentFlagPARENT_STRICT)
)

// observers are the programs on the parents of this node.
type observers struct {
	dir    pinDir
	code   *code
	noTCX  *atomic.Bool
	tables *tables
}

// AttachObserver attaches the observer to the parent with this ifindex in the calling thread's
// network namespace, at the head of both chains. Another call updates the parent's description,
// attaches a missing program and moves the observer back to the head. It returns ErrNoDevice if
// there is no such interface.
func (o *observers) AttachObserver(parent int) error {
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	if err := o.attachObserver(parent); err != nil {
		return fmt.Errorf("attach observer to ifindex %d: %w", parent, err)
	}
	return nil
}

func (o *observers) attachObserver(parent int) error {
	if err := o.describeParent(parent); err != nil {
		return err
	}
	if o.noTCX.Load() {
		return o.observeByFilters(parent)
	}
	err := o.observeByLinks(parent)
	if errors.Is(err, ebpf.ErrNotSupported) {
		o.noTCX.Store(true)
		return o.observeByFilters(parent)
	}
	return err
}

func (o *observers) observeByLinks(parent int) error {
	pins := o.dir.observer(parent)
	gone, err := pins.Gone()
	if err != nil {
		return err
	}
	if gone { // the kernel reuses ifindexes
		if err := pins.Remove(); err != nil {
			return err
		}
	}
	var programs attach.Programs
	for _, d := range attach.Directions {
		first, err := pins.First(d, parent)
		if err != nil {
			return err
		}
		if first {
			continue
		}
		if programs == nil {
			if programs, err = o.loadObserverPair(uint32(parent)); err != nil {
				return err
			}
			defer programs.Close()
		}
		if err := pins.Attach(d, parent, programs[d.Name]); err != nil {
			return err
		}
	}
	return nil
}

// describeParent writes the parent's MAC and whether it is a bridge port for the programs, before
// the first frame.
func (o *observers) describeParent(parent int) error {
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
	known, err := lookup(o.tables.maps.Parents, uint32(parent), &before)
	if err != nil {
		return fmt.Errorf("read parent: %w", err)
	}
	p.Flags |= before.Flags & parentStrict
	err = o.tables.maps.Parents.Put(uint32(parent), p)
	if errors.Is(err, unix.E2BIG) {
		if err := o.forgetParents(); err != nil {
			return err
		}
		err = o.tables.maps.Parents.Put(uint32(parent), p)
	}
	if err != nil {
		return fmt.Errorf("describe parent: %w", err)
	}
	if !known || before != p {
		if err := errors.Join(o.tellMACs(), o.tables.tellLocals()); err != nil {
			return err
		}
	}
	err = o.tables.maps.Hearing.Update(uint32(parent), uint64(0), ebpf.UpdateNoExist)
	if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("create hearing: %w", err)
	}
	return nil
}

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

// detachObserver takes the observer off a parent and forgets the parent. A missing observer is no
// error. It needs mu.
func (o *observers) detachObserver(parent int) error {
	err := errors.Join(o.removeObserverFilters(parent), o.dir.observer(parent).Remove())
	delete(o.tables.trusted, uint32(parent))
	for _, m := range []*ebpf.Map{o.tables.maps.Parents, o.tables.maps.Hearing} {
		if e := m.Delete(uint32(parent)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// ObserversAttached returns the parents to which an observer was attached, and whether both of its
// programs are still at the head of an existing device's chains. It looks for parents in the
// calling thread's network namespace.
func (o *observers) ObserversAttached() (map[int]bool, error) {
	parents, err := o.dir.observers()
	if err != nil {
		return nil, err
	}
	attached := map[int]bool{}
	for _, parent := range parents {
		// A parent that cannot be queried, for instance because it was moved, counts as not
		// observed.
		attached[int(parent)] = o.observes(int(parent))
	}
	return attached, nil
}

// observes reports whether both of the observer's programs are the first to see the parent's
// frames.
func (o *observers) observes(parent int) bool {
	if o.noTCX.Load() {
		ids, err := attach.FirstFilters(parent)
		return err == nil && !slices.Contains(ids[:], 0)
	}
	for _, d := range attach.Directions {
		first, err := o.dir.observer(parent).First(d, parent)
		if err != nil || !first {
			return false
		}
	}
	return true
}
