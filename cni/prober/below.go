// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// below is the interface that a link names: its parent, or the other end of a veth.
type below struct {
	index int
	// netNS is the network namespace of index; nil: that of the link.
	netNS ns.NetNS
}

// belowOf returns the interface below a link in the network namespace of the thread. caller is the
// namespace of the plugin. ok is false if there is none, or if it is in a third namespace.
func belowOf(l netlink.Link, caller ns.NetNS) (b below, ok bool, err error) {
	a := l.Attrs()
	if a.ParentIndex == 0 || a.NetNsID < 0 {
		return below{index: a.ParentIndex}, a.ParentIndex != 0, nil
	}
	id, err := netlink.GetNetNsIdByFd(int(caller.Fd()))
	if err != nil {
		return below{}, false, fmt.Errorf("look for the network namespace of interface %d: %w", a.ParentIndex, err)
	}
	return below{a.ParentIndex, caller}, id == a.NetNsID, nil
}

// do runs fn in the network namespace of the interface.
func (b below) do(fn func() error) error {
	if b.netNS == nil {
		return fn()
	}
	return b.netNS.Do(func(ns.NetNS) error { return fn() })
}

// Parent is the interface of the machine on which a container's interface stands.
type Parent struct {
	Name string
	// Addrs are its addresses. The container's frames do not reach the stack that has them.
	Addrs []netip.Addr
}

// ParentOf returns the parent of a macvlan or ipvlan in the network namespace at netNS, and the zero
// value if the interface is none, or does not exist yet. A VLAN is another segment than its parent's.
func ParentOf(netNS, iface string) (p Parent, err error) {
	err = inside(netNS, func(caller ns.NetNS) error {
		l, err := find(netlink.LinkByName, iface)
		if err != nil {
			return err
		}
		switch l.Type() {
		case "macvlan", "macvtap", "ipvlan":
		default:
			return nil
		}
		b, ok, err := belowOf(l, caller)
		if err != nil || !ok {
			return err
		}
		return b.do(func() error { return p.read(b.index) })
	})
	if errors.Is(err, ErrNoInterface) {
		return Parent{}, nil
	}
	return p, err
}

// read reads the parent in the network namespace of the thread.
func (p *Parent) read(index int) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("find interface %d: %w", index, err)
	}
	p.Name = l.Attrs().Name
	addrs, err := wholelist.Of(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", p.Name, err)
	}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			p.Addrs = append(p.Addrs, addr.Unmap())
		}
	}
	return nil
}

// deafness has the interfaces beneath one, or itself, that pass on no frame yet although they have their
// carrier, with the reasons, by their index: the ports of a bridge that runs the spanning tree protocol,
// and a bond that negotiates (LACP). All are in the network namespace of the thread. The switches behind
// them are out of its sight.
type deafness map[int]string

// deafnessOf returns the deafness of an interface, and of the port that it is.
func deafnessOf(index int) (deafness, error) {
	d := deafness{}
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("find interface %d: %w", index, err)
	}
	if err := d.look(index, 0); err != nil || l.Attrs().MasterIndex == 0 {
		return d, err
	}
	return d, d.look(l.Attrs().MasterIndex, index)
}

// look looks at an interface and at all beneath it. own is the port of the container, if the interface is
// a bridge that has it: that one must forward.
func (d deafness) look(index, own int) error {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Errorf("find interface %d: %w", index, err)
	}
	switch l := l.(type) {
	case *netlink.Bridge:
		return d.lookAtPorts(l, own)
	case *netlink.Bond:
		links, err := wholelist.Of(netlink.LinkList)
		if err != nil {
			return fmt.Errorf("list the interfaces of %s: %w", l.Name, err)
		}
		if negotiates(l, links) {
			d[index] = l.Name + " has not agreed with its partner on an aggregation (LACP)"
		}
	case *netlink.Vlan, *netlink.Macvlan, *netlink.Macvtap, *netlink.IPVlan:
		if a := l.Attrs(); a.ParentIndex != 0 && a.NetNsID < 0 {
			return d.look(a.ParentIndex, 0)
		}
	}
	return nil
}

func (d deafness) lookAtPorts(bridge *netlink.Bridge, own int) error {
	ports, err := portsOf(bridge)
	if err != nil {
		return fmt.Errorf("list the ports of bridge %s: %w", bridge.Name, err)
	}
	for _, p := range ports {
		switch {
		case p.state == forwarding:
			if err := d.look(p.index, 0); err != nil {
				return err
			}
		case p.state == listening, p.state == learning, p.index == own:
			d[p.index] = fmt.Sprintf("port %s of bridge %s is %s", p.name, bridge.Name, p.state)
		}
	}
	return nil
}

// negotiates reports whether a bond of mode 802.3ad passes on no frame although it may have its carrier:
// none of its interfaces collects and distributes frames (IEEE 802.1AX section 6.4.7). If no partner
// answers, an interface works alone (drivers/net/bonding/bond_3ad.c ad_agg_selection_logic).
func negotiates(bond *netlink.Bond, links []netlink.Link) bool {
	const collectsAndDistributes = 0x30
	partner := bond.AdInfo != nil && slices.ContainsFunc(bond.AdInfo.PartnerMac, func(b byte) bool { return b != 0 })
	return bond.Mode == netlink.BOND_MODE_802_3AD && !slices.ContainsFunc(links, func(l netlink.Link) bool {
		s, ok := l.Attrs().Slave.(*netlink.BondSlave)
		return ok && l.Attrs().MasterIndex == bond.Index && s.State == netlink.BondStateActive &&
			(!partner || s.AdActorOperPortState&collectsAndDistributes == collectsAndDistributes)
	})
}

// portState is the state of a bridge's port (include/uapi/linux/if_bridge.h).
type portState byte

const (
	listening  portState = 1
	learning   portState = 2
	forwarding portState = 3
)

func (s portState) String() string {
	return []string{"disabled", "listening", "learning", "forwarding", "blocking"}[min(s, 4)]
}

type port struct {
	index int
	name  string
	state portState
}

func portsOf(bridge *netlink.Bridge) (found []port, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
	answers, err := wholelist.Of(func() ([][]byte, error) { return request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK) })
	if err != nil {
		return nil, err
	}
	for _, answer := range answers {
		attributes, err := nl.ParseRouteAttrAsMap(answer[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, err
		}
		master := attributes[unix.IFLA_MASTER].Value
		if len(master) != 4 || int(nl.NativeEndian().Uint32(master)) != bridge.Index {
			continue
		}
		state, err := nl.ParseRouteAttrAsMap(attributes[unix.IFLA_PROTINFO|unix.NLA_F_NESTED].Value)
		if err != nil {
			return nil, err
		}
		if v := state[unix.IFLA_BRPORT_STATE].Value; len(v) == 1 {
			index := int(nl.DeserializeIfInfomsg(answer).Index)
			found = append(found, port{index, nl.BytesToString(attributes[unix.IFLA_IFNAME].Value), portState(v[0])})
		}
	}
	return found, nil
}
