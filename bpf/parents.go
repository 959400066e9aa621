package bpf

import (
	"errors"
	"fmt"

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
