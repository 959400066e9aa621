// SPDX-License-Identifier: Apache-2.0

package subinterface

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/wholelist"
)

// A subinterface that Fenceline made has this group and alias. They last as long as the interface.
// A file would be wrong after a boot. The group is part of the request that makes the interface, so
// an agent that dies right after it finds the interface again. The alias is for people.
const (
	group = 0x464c
	alias = "made by fenceline"
)

// ErrNoVLANs is returned if the kernel makes no VLAN subinterfaces.
var ErrNoVLANs = errors.New("the kernel has no 802.1Q; load the module 8021q")

// Kernel is the calling network namespace.
type Kernel struct{}

// Links returns the interfaces.
func (Kernel) Links() ([]Link, error) {
	all, err := wholelist.Of(netlink.LinkList)
	if err != nil { // also if every list was interrupted: an interface that is not listed would be made twice
		return nil, fmt.Errorf("list the interfaces of this node: %w", err)
	}
	var vlans map[int32][]*nl.BridgeVlanInfo
	if slices.ContainsFunc(all, filters) {
		if vlans, err = wholelist.Of(netlink.BridgeVlanList); err != nil {
			return nil, fmt.Errorf("list the VLANs of this node's bridges: %w", err)
		}
	}
	above, ovs := map[int]bool{}, map[int]bool{}
	for _, l := range all {
		if a := l.Attrs(); a.NetNsID < 0 && l.Type() != "veth" {
			above[a.ParentIndex] = true
		}
		ovs[l.Attrs().Index] = l.Type() == wholelist.OVSKind
	}
	links := make([]Link, 0, len(all))
	for _, l := range all {
		a := l.Attrs()
		link := Link{Name: a.Name, AltNames: a.AltNames, Index: a.Index, Up: a.RawFlags&unix.IFF_UP != 0, Used: above[a.Index] || a.MasterIndex != 0, Filters: filters(l), Master: a.MasterIndex, Switch: ovs[a.Index], Switched: ovs[a.MasterIndex] && len(a.Vfs) == 0}
		for _, v := range vlans[int32(a.Index)] {
			if link.Untagged == nil {
				link.Untagged = map[int]bool{}
			}
			link.Untagged[int(v.Vid)] = v.PortVID() || v.EngressUntag()
		}
		if v, ok := l.(*netlink.Vlan); ok && v.VlanProtocol != netlink.VLAN_PROTOCOL_8021AD {
			link.VLAN, link.Ours = v.VlanId, a.Group == group
			if a.NetNsID < 0 {
				link.Lower = a.ParentIndex
			}
		}
		if link.Ours && !link.Used {
			if link.Used, err = used(l); err != nil {
				return nil, err
			}
		}
		links = append(links, link)
	}
	return links, nil
}

// used reports whether an interface has an address of its own, or an interface in another network
// namespace sends through it: a macvlan that is up adds a unicast address to the filter of the
// interface below it. An ipvlan adds none since Linux 4.17: the journal has those of pods.
func used(l netlink.Link) (bool, error) {
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list the addresses of %s: %w", l.Attrs().Name, err)
	}
	for _, a := range addrs {
		if !a.IP.IsLinkLocalUnicast() {
			return true, nil
		}
	}
	filter, err := netlink.NeighList(l.Attrs().Index, unix.AF_BRIDGE)
	if err != nil {
		return false, fmt.Errorf("read the address filter of %s: %w", l.Attrs().Name, err)
	}
	for _, n := range filter {
		if len(n.HardwareAddr) > 0 && n.HardwareAddr[0]&1 == 0 {
			return true, nil
		}
	}
	return false, nil
}

// filters reports whether an interface is a bridge that filters VLANs.
func filters(l netlink.Link) bool {
	b, ok := l.(*netlink.Bridge)
	return ok && b.VlanFiltering != nil && *b.VlanFiltering
}

// Make makes a subinterface and sets it up. A bridge that filters VLANs gets the VLAN as its own, and keeps it. After
// an error the subinterface does not exist.
func (k Kernel) Make(w Wanted) error {
	parent, err := netlink.LinkByName(w.Parent)
	if err != nil {
		return fmt.Errorf("find %s: %w", w.Parent, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.Group = w.Name, parent.Attrs().Index, group
	link := &netlink.Vlan{LinkAttrs: attrs, VlanId: w.ID, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q}
	if err := netlink.LinkAdd(link); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w: %w", ErrNoVLANs, err)
		}
		return err
	}
	if filters(parent) {
		if err := netlink.BridgeVlanAdd(parent, uint16(w.ID), false, false, true, false); err != nil {
			return errors.Join(fmt.Errorf("make VLAN %d one of bridge %s itself: %w", w.ID, w.Parent, err), netlink.LinkDel(link))
		}
	}
	if err := netlink.LinkSetAlias(link, alias); err != nil {
		return errors.Join(fmt.Errorf("name its maker: %w", err), netlink.LinkDel(link))
	}
	if err := k.SetUp(Link{Index: link.Index}); err != nil {
		return errors.Join(fmt.Errorf("set it up: %w", err), netlink.LinkDel(link))
	}
	return nil
}

// SetUp sets a subinterface up. While its parent is down, it has no effect: the next pass tries again.
func (Kernel) SetUp(l Link) error {
	err := netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: l.Index}})
	if errors.Is(err, unix.ENETDOWN) {
		return nil
	}
	return err
}

// Remove removes a subinterface. A missing one is no error.
func (Kernel) Remove(l Link) error {
	err := netlink.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: l.Name, Index: l.Index}})
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
