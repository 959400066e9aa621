package main

import (
	"github.com/vishvananda/netlink"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// named returns the interfaces of this node on which a pool is reached by what
// it says itself: its parents, or where it has a VLAN those of that VLAN on them.
func (a *agent) named(pool *v1alpha1.IPPool) []string {
	vlan := ptr.Deref(pool.Spec.Vlan, 0)
	if vlan == 0 || len(pool.Spec.Parents) == 0 {
		return pool.Spec.Parents
	}
	links, err := netlink.LinkList()
	if err != nil {
		a.log.Error(err, "the interfaces of a VLAN are not known now", "pool", pool.Name)
		return nil
	}
	var names []string
	for _, parent := range pool.Spec.Parents {
		if name, ok := onVLAN(links, parent, int(vlan)); ok {
			names = append(names, name)
		}
	}
	return names
}

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
		if is && index != 0 && v.VlanId == vlan && (attrs.Name == parent || attrs.ParentIndex == index) {
			return attrs.Name, true
		}
	}
	return "", false
}
