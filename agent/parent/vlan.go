// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// Named returns the names of the interfaces of this node on which a pool is reached by its own spec:
// its parents or, if the pool has a VLAN, the interfaces of that VLAN on them. They are the names of
// the kernel, also if the pool has alternative ones. Named returns an error if the interfaces cannot be
// read now.
func Named(pool *v1alpha1.IPPool) ([]string, error) { return named(pool, find, netlink.LinkList) }

func named(pool *v1alpha1.IPPool, find func(string) (netlink.Link, error), list func() ([]netlink.Link, error)) (names []string, err error) {
	vlan := int(ptr.Deref(pool.Spec.Vlan, 0))
	if vlan == 0 {
		for _, name := range pool.Spec.Parents {
			link, err := find(name)
			if err != nil {
				return nil, err
			}
			if link != nil {
				names = append(names, link.Attrs().Name)
			}
		}
		return names, nil
	}
	if len(pool.Spec.Parents) == 0 {
		return nil, nil
	}
	links, err := wholelist.Of(list)
	for _, parent := range pool.Spec.Parents {
		if name, ok := onVLAN(links, parent, vlan); ok {
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
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return slices.Contains(namesOf(l), parent) })
	if at < 0 {
		return "", false
	}
	index := links[at].Attrs().Index
	for _, l := range links {
		attrs := l.Attrs()
		v, isVLAN := l.(*netlink.Vlan)
		// If the interface was moved here, its parent's index counts in another namespace.
		isOnParent := attrs.ParentIndex == index && attrs.NetNsID < 0
		if isVLAN && v.VlanId == vlan && (attrs.Index == index || isOnParent) {
			return attrs.Name, true
		}
	}
	return "", false
}
