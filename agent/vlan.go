package main

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// listTries is how often the interfaces are listed until no change interrupts the list.
const listTries = 10

// named returns the interfaces of this node on which a pool is reached by what
// it says itself: its parents, or where it has a VLAN those of that VLAN on them.
// It fails where that cannot be told now: what is not known is not absent.
func named(pool *v1alpha1.IPPool, list func() ([]netlink.Link, error)) ([]string, error) {
	vlan := ptr.Deref(pool.Spec.Vlan, 0)
	if vlan == 0 || len(pool.Spec.Parents) == 0 {
		return pool.Spec.Parents, nil
	}
	var err error
	for range listTries {
		var links []netlink.Link
		links, err = list()
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		var names []string
		for _, parent := range pool.Spec.Parents {
			if name, ok := onVLAN(links, parent, int(vlan)); ok {
				names = append(names, name)
			}
		}
		if err == nil || len(names) == len(pool.Spec.Parents) {
			return names, nil
		}
	}
	return nil, fmt.Errorf("list the interfaces of VLAN %d for pool %s: %w", vlan, pool.Name, err)
}

func namedHere(pool *v1alpha1.IPPool) ([]string, error) { return named(pool, netlink.LinkList) }

// onVLAN finds the interface whose frames carry a VLAN on a parent: the parent
// itself if it is one of that VLAN, or one that hangs on it. Frames of the bare
// parent are another segment's, where silence would prove nothing.
func onVLAN(links []netlink.Link, parent string, vlan int) (name string, ok bool) {
	index := 0
	for _, l := range links {
		if l.Attrs().Name == parent {
			index = l.Attrs().Index
		}
	}
	for _, l := range links {
		attrs := l.Attrs()
		v, is := l.(*netlink.Vlan)
		// Of one that was moved here, the parent's index is another namespace's.
		hangsOn := attrs.ParentIndex == index && attrs.NetNsID < 0
		if is && index != 0 && v.VlanId == vlan && (attrs.Name == parent || hangsOn) {
			return attrs.Name, true
		}
	}
	return "", false
}
