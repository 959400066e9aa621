package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// parents lists what the programs know of parents, by ifindex. It needs mu.
func (k *Kernel) parents() (map[int]observerParent, error) {
	all := map[int]observerParent{}
	var parent uint32
	var p observerParent
	it := k.maps.Parents.Iterate()
	for it.Next(&parent, &p) {
		all[int(parent)] = p
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("list parents: %w", err)
	}
	return all, nil
}

// forgetParents makes room: a parent that goes leaves what is known of it, and has another ifindex when it is made anew.
func (k *Kernel) forgetParents() error {
	all, err := k.parents()
	if err != nil {
		return err
	}
	for parent := range all {
		gone, err := k.parentGone(parent)
		if err == nil && gone {
			err = k.detachObserver(parent)
		}
		if err != nil {
			return fmt.Errorf("forget the parent with ifindex %d: %w", parent, err)
		}
	}
	return nil
}

// parentGone tells whether a parent is. One that was moved to another namespace keeps its links, and its pods.
func (k *Kernel) parentGone(parent int) (bool, error) {
	gone, err := k.dir.observer(parent).gone()
	if err != nil || !gone {
		return false, err
	}
	_, err = netlink.LinkByIndex(parent)
	if err = noDevice(err); errors.Is(err, ErrNoDevice) {
		return true, nil
	}
	return false, err
}

// tellMACs tells the programs which MACs this node's parents have: two of one segment hear each other, which proves
// nothing of other nodes (R2).
func (k *Kernel) tellMACs() error {
	parents, err := k.parents()
	if err != nil {
		return err
	}
	wanted := map[[3]uint16]bool{}
	for _, p := range parents {
		wanted[p.Mac.Part] = true
	}
	var stale [][3]uint16
	var mac [3]uint16
	var unused uint8
	it := k.maps.OwnMacs.Iterate()
	for it.Next(&mac, &unused) {
		if !wanted[mac] {
			stale = append(stale, mac)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list MACs of parents: %w", err)
	}
	for _, mac := range stale {
		if err := k.maps.OwnMacs.Delete(mac); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove a parent's MAC: %w", err)
		}
	}
	for mac := range wanted {
		if err := k.maps.OwnMacs.Put(mac, uint8(1)); err != nil {
			return fmt.Errorf("add a parent's MAC: %w", err)
		}
	}
	return nil
}
