// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/wholelist"
)

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
