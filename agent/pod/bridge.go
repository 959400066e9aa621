// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// bridged returns the node's end of a pod's veth, and the parent of the bridge's port that it is. It reads the calling
// thread's network namespace, which is the node's.
func bridged(link netlink.Link, hostID int) (end int, parent Parent, err error) {
	attrs := link.Attrs()
	if err := isOnNode(attrs, hostID); err != nil {
		return 0, Parent{}, err
	}
	port, err := netlink.LinkByIndex(attrs.ParentIndex)
	if err != nil {
		return 0, Parent{}, fmt.Errorf("%w: read the other end of the veth, ifindex %d: %w", ErrNoUplink, attrs.ParentIndex, err)
	}
	end = port.Attrs().Index
	// Other pods come and go meanwhile, so few lists are whole. The uplink stays.
	links, err := netlink.LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		if parent, err := parentOf(links, port, netlink.BridgeVlanList, ovs); err == nil {
			return end, parent, nil
		}
		links, err = wholelist.Of(netlink.LinkList)
	}
	if err != nil {
		return end, Parent{}, fmt.Errorf("%w: list the ports of the bridge of %s: %w", ErrNoUplink, port.Attrs().Name, err)
	}
	parent, err = parentOf(links, port, netlink.BridgeVlanList, ovs)
	return end, parent, err
}

// vlans are the VLANs of ports, and of bridges themselves, by ifindex.
type vlans map[int32][]*nl.BridgeVlanInfo

// of returns a VLAN of an interface, or nil.
func (v vlans) of(index int, vid uint16) *nl.BridgeVlanInfo {
	for _, i := range v[int32(index)] {
		if i.Vid == vid {
			return i
		}
	}
	return nil
}

// parentOf returns the parent of a bridge's port, which reaches all that the port reaches outside. links are all those
// of the node.
func parentOf(links []netlink.Link, port netlink.Link, list func() (map[int32][]*nl.BridgeVlanInfo, error), ovs func() ([]wholelist.OVSBridge, error)) (Parent, error) {
	above := port.Attrs().MasterIndex
	at := slices.IndexFunc(links, func(l netlink.Link) bool { return l.Attrs().Index == above })
	switch {
	case above == 0: // Open vSwitch takes its ports after ovs-cni has gone on
		parent, err := ofOVS(links, port.Attrs().Name, ovs)
		if errors.Is(err, ErrNoOVS) || errors.Is(err, errNoPort) {
			err = fmt.Errorf("%w: it is a veth, and its other end %s is no port of a bridge", ErrNoUplink, port.Attrs().Name)
		}
		return parent, err
	case at < 0:
		return Parent{}, fmt.Errorf("%w: the bridge, ifindex %d, is gone", ErrNoUplink, above)
	case links[at].Type() == wholelist.OVSKind:
		return ofOVS(links, port.Attrs().Name, ovs)
	}
	bridge, ok := links[at].(*netlink.Bridge)
	if !ok {
		return Parent{}, fmt.Errorf("%w: %s is of kind %s, not a bridge", ErrNoUplink, links[at].Attrs().Name, links[at].Type())
	}
	ports, err := wholelist.Uplinks(links, bridge)
	if err != nil {
		return Parent{}, err
	}
	uplink, err := onlyUplink(bridge.Name, ports)
	if err != nil || bridge.VlanFiltering == nil || !*bridge.VlanFiltering {
		return uplink, err
	}
	all, err := wholelist.Of(list)
	if err != nil {
		return Parent{}, fmt.Errorf("%w: list the VLANs of bridge %s: %w", ErrNoVLAN, bridge.Name, err)
	}
	parent, err := inVLAN(links, all, bridge, uplink, port.Attrs())
	if err != nil {
		return Parent{}, fmt.Errorf("%w: bridge %s filters VLANs, and %w", ErrNoVLAN, bridge.Name, err)
	}
	return parent, nil
}

// inVLAN returns the parent of a port on a bridge that filters VLANs. It is the uplink if the port's VLAN has no tag
// there. Otherwise it is the interface of this VLAN on the bridge: one on the uplink would take the frames from the
// bridge (vlan_do_receive in the kernel).
func inVLAN(links []netlink.Link, all vlans, bridge *netlink.Bridge, uplink Parent, port *netlink.LinkAttrs) (Parent, error) {
	own := all[int32(port.Index)]
	switch {
	case len(own) > 1:
		return Parent{}, fmt.Errorf("%s is in several VLANs: set preserveDefaultVlan to false in the network configuration, and no vlanTrunk", port.Name)
	case len(own) == 0 || !own[0].PortVID() || !own[0].EngressUntag():
		return Parent{}, fmt.Errorf("%s has no VLAN for untagged frames: set vlan in the network configuration", port.Name)
	}
	vid := own[0].Vid
	outside, inside := all.of(uplink.Index, vid), all.of(bridge.Index, vid)
	on, isOn := subinterface(links, uplink.Index, vid)
	sub, isSub := subinterface(links, bridge.Index, vid)
	switch {
	case outside == nil:
		return Parent{}, fmt.Errorf("VLAN %d does not reach its port %s: run bridge vlan add dev %[2]s vid %[1]d", vid, uplink.Name)
	case outside.PortVID() != outside.EngressUntag():
		return Parent{}, fmt.Errorf("VLAN %d has a tag on its port %s in one direction alone: make it both the PVID and untagged there, or neither", vid, uplink.Name)
	case outside.PortVID():
		return uplink, nil
	case isOn:
		return Parent{}, fmt.Errorf("%s takes VLAN %d from it: remove this interface", on.Name, vid)
	case inside != nil && (inside.PortVID() || inside.EngressUntag()): // the node's own address may be there
		return Parent{}, fmt.Errorf("VLAN %d has no tag on %s itself, so no interface can hear it there: put the node's own address on %[2]s.%[1]d, and make the VLAN tagged on %[2]s, or use another VLAN", vid, bridge.Name)
	case !isSub || inside == nil:
		return Parent{}, fmt.Errorf("the node has no interface in VLAN %d of it: run ip link add link %[2]s name %[2]s.%[1]d up type vlan id %[1]d; bridge vlan add dev %[2]s vid %[1]d self", vid, bridge.Name)
	}
	return sub, nil
}

// subinterface returns the interface of a VLAN on another interface.
func subinterface(links []netlink.Link, lower int, vid uint16) (Parent, bool) {
	for _, l := range links {
		v, ok := l.(*netlink.Vlan)
		if ok && v.VlanId == int(vid) && v.ParentIndex == lower && v.NetNsID < 0 && v.VlanProtocol != netlink.VLAN_PROTOCOL_8021AD {
			return Parent{Index: v.Index, Name: v.Name}, true
		}
	}
	return Parent{}, false
}

// onlyUplink returns the only port of a bridge that leads to no pod or virtual machine.
func onlyUplink(bridge string, ports []netlink.Link) (Parent, error) {
	var names []string
	for _, l := range ports {
		names = append(names, l.Attrs().Name)
	}
	switch len(ports) {
	case 0:
		return Parent{}, fmt.Errorf("%w: bridge %s has no port to the network; make the interface of the underlay its port", ErrNoUplink, bridge)
	case 1:
		return Parent{Index: ports[0].Attrs().Index, Name: names[0]}, nil
	}
	return Parent{}, fmt.Errorf("%w: bridge %s has several ports to the network, %s; use a bond of them", ErrNoUplink, bridge, strings.Join(names, ", "))
}
