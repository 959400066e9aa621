// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// bridged returns the node's end of a pod's veth, and the uplink of the bridge that it is a port of. It reads
// the calling thread's network namespace, which is the node's.
func bridged(link netlink.Link, hostID int) (end int, uplink Parent, err error) {
	attrs := link.Attrs()
	if err := isOnNode(attrs, hostID); err != nil {
		return 0, Parent{}, err
	}
	port, err := netlink.LinkByIndex(attrs.ParentIndex)
	if err != nil {
		return 0, Parent{}, fmt.Errorf("%w: read the other end of the veth, ifindex %d: %w", ErrNoUplink, attrs.ParentIndex, err)
	}
	end = port.Attrs().Index
	if port.Attrs().MasterIndex == 0 {
		return end, Parent{}, fmt.Errorf("%w: it is a veth, and its other end %s is no port of a bridge", ErrNoUplink, port.Attrs().Name)
	}
	// Other pods come and go meanwhile, so few lists are whole. The uplink stays.
	links, err := netlink.LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		if uplink, err := uplinkOf(links, port.Attrs().MasterIndex); err == nil {
			return end, uplink, nil
		}
		links, err = wholelist.Of(netlink.LinkList)
	}
	if err != nil {
		return end, Parent{}, fmt.Errorf("%w: list the ports of the bridge of %s: %w", ErrNoUplink, port.Attrs().Name, err)
	}
	uplink, err = uplinkOf(links, port.Attrs().MasterIndex)
	return end, uplink, err
}

// uplinkOf returns the uplink of a bridge: its only port that leads to no pod or virtual machine. links are all
// those of the node.
func uplinkOf(links []netlink.Link, bridge int) (Parent, error) {
	var uplinks []Parent
	var names []string
	isOfHost := func(l netlink.Link) bool {
		return slices.Contains([]string{string(VETH), "tuntap", "tun", "dummy", "ifb"}, l.Type())
	}
	for _, l := range links {
		a := l.Attrs()
		if a.MasterIndex == bridge && !isOfHost(l) {
			uplinks, names = append(uplinks, Parent{Index: a.Index, Name: a.Name}), append(names, a.Name)
		}
	}
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == bridge })
	if at < 0 {
		return Parent{}, fmt.Errorf("%w: the bridge, ifindex %d, is gone", ErrNoUplink, bridge)
	}
	name := links[at].Attrs().Name
	b, ok := links[at].(*netlink.Bridge)
	switch {
	case !ok:
		return Parent{}, fmt.Errorf("%w: %s is of kind %s, not a Linux bridge", ErrNoUplink, name, links[at].Type())
	case b.VlanFiltering != nil && *b.VlanFiltering:
		return Parent{}, fmt.Errorf("%w: bridge %s filters VLANs, so its ports are in several segments; make a bridge for each VLAN, with a VLAN interface as its uplink", ErrNoUplink, name)
	case len(uplinks) == 0:
		return Parent{}, fmt.Errorf("%w: bridge %s has no port to the network; make the interface of the underlay its port", ErrNoUplink, name)
	case len(uplinks) > 1:
		return Parent{}, fmt.Errorf("%w: bridge %s has several ports to the network, %s; use a bond of them", ErrNoUplink, name, strings.Join(names, ", "))
	}
	return uplinks[0], nil
}
