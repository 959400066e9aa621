// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// Named returns the names of the interfaces on which a pool is reached by its own spec: its parents
// or, if the pool has a VLAN, the interfaces of that VLAN on them. Without a VLAN the interfaces
// need not exist. Named returns an error if the interfaces cannot be listed now.
func Named(pool *v1alpha1.IPPool) ([]string, error) { return named(pool, netlink.LinkList) }

func named(pool *v1alpha1.IPPool, list func() ([]netlink.Link, error)) ([]string, error) {
	vlan := ptr.Deref(pool.Spec.Vlan, 0)
	if vlan == 0 || len(pool.Spec.Parents) == 0 {
		return pool.Spec.Parents, nil
	}
	links, err := wholelist.Of(list)
	var names []string
	for _, parent := range pool.Spec.Parents {
		if name, ok := onVLAN(links, parent, int(vlan)); ok {
			names = append(names, name)
		}
	}
	if err != nil && len(names) < len(pool.Spec.Parents) { // an interrupted list may have all of them
		return nil, fmt.Errorf("list the interfaces of VLAN %d for pool %s: %w", vlan, pool.Name, err)
	}
	return names, nil
}

// onVLAN returns the interface whose frames carry a VLAN on a parent: the parent
// itself if it is an interface of that VLAN, or a VLAN interface on the parent.
// Frames of the bare parent belong to another segment, where silence proves nothing.
func onVLAN(links []netlink.Link, parent string, vlan int) (name string, ok bool) {
	index := 0
	for _, l := range links {
		if l.Attrs().Name == parent {
			index = l.Attrs().Index
		}
	}
	for _, l := range links {
		attrs := l.Attrs()
		v, isVLAN := l.(*netlink.Vlan)
		// If the interface was moved here, its parent's index counts in another namespace.
		isOnParent := attrs.ParentIndex == index && attrs.NetNsID < 0
		if isVLAN && index != 0 && v.VlanId == vlan && (attrs.Name == parent || isOnParent) {
			return attrs.Name, true
		}
	}
	return "", false
}
