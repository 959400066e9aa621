// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// mostLower bounds the way from a parent down to its device: a VLAN in a VLAN on a bond has three steps.
const mostLower = 8

// Unfit returns the reason for which Fenceline cannot promise one speaker on an interface, although it
// and its parent exist. It is nil if they cannot be read: Find says why. Only an ADD asks, so a pod
// that runs keeps its guard.
func (f *Finder) Unfit(path, name string) error {
	links, err := f.links(path)
	if err != nil {
		return nil
	}
	defer links.Close()
	link, err := links.LinkByName(name)
	if err != nil {
		return nil
	}
	err = layer3(link)
	parent := 0
	if hasParent(kind(link)) {
		parent = link.Attrs().ParentIndex
	} else if kind(link) == VETH {
		if found, fault := f.Find(path, name); fault == nil {
			parent = found.Parent.Index
		}
	}
	if err == nil && parent != 0 {
		way, _ := Below(parent) // a device that cannot be read rewrites nothing
		err = Rewrites(way)
	}
	if err != nil {
		return fmt.Errorf("use interface %s in %s: %w", name, path, err)
	}
	return nil
}

// layer3 returns ErrLayer3 for an ipvlan that routes: its pods neither send nor hear ARP.
func layer3(link netlink.Link) error {
	if v, ok := link.(*netlink.IPVlan); ok && v.Mode != netlink.IPVLAN_MODE_L2 {
		return fmt.Errorf("%w: it is an ipvlan in mode %s", ErrLayer3, map[netlink.IPVlanMode]string{
			netlink.IPVLAN_MODE_L3: "l3", netlink.IPVLAN_MODE_L3S: "l3s",
		}[v.Mode])
	}
	return nil
}

// Below returns a parent and the devices of this node below it, from the top down. A frame to the
// parent takes the reverse way. With an error, the lowest devices are missing.
func Below(parent int) ([]netlink.Link, error) {
	way, err := below(parent, netlink.LinkByIndex)
	if err != nil || !slices.Contains([]string{"bridge", wholelist.OVSKind}, way[len(way)-1].Type()) {
		return way, err
	}
	links, err := wholelist.Of(netlink.LinkList)
	ports, unread := wholelist.Uplinks(links, way[len(way)-1])
	err = errors.Join(err, unread)
	for _, port := range ports {
		more, unread := below(port.Attrs().Index, netlink.LinkByIndex)
		way, err = append(way, more...), errors.Join(err, unread)
	}
	return way, err
}

func below(index int, read func(int) (netlink.Link, error)) (way []netlink.Link, err error) {
	for range mostLower {
		link, err := read(index)
		if err != nil {
			return way, fmt.Errorf("read the interface with the index %d: %w", index, err)
		}
		way = append(way, link)
		attrs := link.Attrs()
		if _, ok := link.(*netlink.Vlan); !ok || attrs.NetNsID >= 0 {
			break // in another kind or namespace, the index has another meaning
		}
		index = attrs.ParentIndex
	}
	return way, nil
}

// Rewrites returns ErrRewrites if one of the devices below a parent, or the parent itself, changes the
// MACs of ARP frames. A bond that balances what it receives answers ARP with the MACs of its ports, so no
// peer learns the MAC of a pod (Linux, bonding.rst, balance-alb).
func Rewrites(way []netlink.Link) error {
	for _, link := range way {
		if b, ok := link.(*netlink.Bond); ok && b.Mode == netlink.BOND_MODE_BALANCE_ALB {
			return fmt.Errorf("%w: bond %s is in mode balance-alb", ErrRewrites, b.Name)
		}
	}
	return nil
}
