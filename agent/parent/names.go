// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// Index returns the index of the interface of this node that the kernel knows by this name, also by an
// alternative one. If the kernel gives no answer now, Index returns an error, because the interface may
// exist.
func Index(name string) (index int, exists bool, err error) {
	link, err := find(name)
	if link == nil {
		return 0, false, err
	}
	return link.Attrs().Index, true, nil
}

// find returns the interface that the kernel knows by this name, or nil.
func find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for interface %s: %w", name, err)
	}
	return link, nil
}

// namesOf returns the name and the alternative names of an interface.
func namesOf(link netlink.Link) []string {
	return append([]string{link.Attrs().Name}, link.Attrs().AltNames...)
}

// node reads interfaces of this node.
type node struct {
	byIndex func(int) (netlink.Link, error)
	list    func() ([]netlink.Link, error)
}

// Describe describes the interface with this ifindex as a parent.
func Describe(index int) (ipam.Parent, error) {
	return node{netlink.LinkByIndex, netlink.LinkList}.describe(index)
}

// Carries reports whether a pool names the interface with this ifindex, or none. It is true if that
// cannot be read.
func Carries(pool *v1alpha1.IPPool, index int) bool {
	if len(pool.Spec.Parents) == 0 {
		return true
	}
	p, err := Describe(index)
	return err != nil || p.Carries(&pool.Spec)
}

func (n node) describe(index int) (ipam.Parent, error) {
	link, err := n.byIndex(index)
	if err != nil {
		return ipam.Parent{}, fmt.Errorf("read the interface with the index %d: %w", index, err)
	}
	p := ipam.Parent{Name: link.Attrs().Name}
	if p.Names, err = n.ofSegment(link); err != nil {
		return ipam.Parent{}, err
	}
	if v, ok := link.(*netlink.Vlan); ok {
		p.VLAN = v.VlanId
		if v.NetNsID < 0 { // otherwise the index counts in another namespace
			below, err := n.byIndex(v.ParentIndex)
			if err != nil {
				return ipam.Parent{}, fmt.Errorf("read the interface below %s: %w", p.Name, err)
			}
			if p.Below, err = n.ofSegment(below); err != nil {
				return ipam.Parent{}, err
			}
		}
	}
	return p, nil
}

// ofSegment returns the names of an interface, and those of its bond, or of its ports if it is a bond.
func (n node) ofSegment(link netlink.Link) ([]string, error) {
	names := namesOf(link)
	if master := link.Attrs().MasterIndex; master != 0 {
		above, err := n.byIndex(master)
		if err != nil {
			return nil, fmt.Errorf("read the interface above %s: %w", link.Attrs().Name, err)
		}
		if isBond(above) {
			names = append(names, namesOf(above)...)
		}
	}
	if !isBond(link) {
		return names, nil
	}
	all, err := wholelist.Of(n.list)
	if err != nil {
		return nil, fmt.Errorf("list the ports of %s: %w", link.Attrs().Name, err)
	}
	for _, port := range all {
		if port.Attrs().MasterIndex == link.Attrs().Index {
			names = append(names, namesOf(port)...)
		}
	}
	return names, nil
}

// isBond reports whether all ports of an interface are on its segment. The ports of a bridge may be in
// several VLANs.
func isBond(link netlink.Link) bool { return slices.Contains([]string{"bond", "team"}, link.Type()) }
