// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/observe"
)

// The flags of the parents map.
const (
	parentBridgePort = uint16(observerParentFlagPARENT_BRIDGE_PORT)
	parentExclusive  = uint16(observerParentFlagPARENT_EXCLUSIVE)
)

// ErrNoDevice is returned if the interface or its network namespace does not exist.
var ErrNoDevice = attach.ErrNoDevice

// observers are the programs on the parents of this node.
type observers struct {
	parents *observe.Parents
	tables  *tables
}

// AttachObserver attaches the observer to the parent with this ifindex in the calling thread's
// network namespace, at the head of both chains. Another call updates the parent's description,
// attaches a missing program and moves the observer back to the head. It returns ErrNoDevice if
// there is no such interface.
func (o *observers) AttachObserver(parent int) error {
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	err := o.describeParent(parent)
	if err == nil {
		err = o.parents.Attach(parent)
	}
	if err != nil {
		return fmt.Errorf("attach observer to ifindex %d: %w", parent, err)
	}
	return nil
}

// describeParent writes the parent's MAC, and whether it is a bridge port, for the programs.
func (o *observers) describeParent(parent int) error {
	dev, err := netlink.LinkByIndex(parent)
	if err != nil {
		return attach.NoDevice(fmt.Errorf("look up the parent: %w", err))
	}
	var p observerParent
	p.Mac.Part = macLayout(dev.Attrs().HardwareAddr)
	bridged, err := observe.IsBridgePort(dev)
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
	p.Flags |= before.Flags & parentExclusive
	if !known { // it may take the place of one that was made again
		if err := o.forgetParents(); err != nil {
			return err
		}
	}
	if err := o.tables.maps.Parents.Put(uint32(parent), p); err != nil {
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

// detachObserver takes the observer, if there is one, off a parent and forgets it. It needs mu.
func (o *observers) detachObserver(parent int) error {
	delete(o.tables.trusted, uint32(parent))
	return errors.Join(o.parents.Detach(parent),
		deleteEntry(o.tables.maps.Parents, uint32(parent)), deleteEntry(o.tables.maps.Hearing, uint32(parent)))
}

// ObserversAttached is Attached of observe.Parents.
func (o *observers) ObserversAttached() (map[int]bool, error) { return o.parents.Attached() }

// ObserverLinks is Links of observe.Parents.
func (o *observers) ObserverLinks(parent int) ([2]uint32, error) { return o.parents.Links(parent) }

// Others is Others of observe.Parents.
func (o *observers) Others(parent int) ([]string, error) {
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	return o.parents.Others(parent)
}

// Blocked is Blocked of observe.Parents.
func (o *observers) Blocked(parent int) error { return o.parents.Blocked(parent) }
