// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/wholelist"
)

// Parent sends frames on a segment's parent. Its sockets stay in the network namespace in which it
// was opened. Frames go through the queueing discipline, and so through the observer.
// PACKET_QDISC_BYPASS would bypass both. Safe for concurrent use.
type Parent struct {
	index  int
	bridge netlink.Link // that the parent is, or of which it is a VLAN; nil: none
	nl     *netlink.Handle
	probes *packet.Conn // marked bpf.ProbeMark
	claims *packet.Conn
	counts *nl.SocketHandle
	groups *groups
}

// PortLink is the state of a parent at one moment.
type PortLink struct {
	Name string
	MAC  net.HardwareAddr
}

// OpenParent opens the sockets of a parent, by ifindex, in the calling thread's network namespace.
func OpenParent(parent int) (_ *Parent, err error) {
	p := &Parent{index: parent}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	if p.bridge, err = p.bridgeOf(parent); err != nil {
		return nil, err
	}
	if p.counts, err = openCounts(); err != nil {
		return nil, err
	}
	if p.probes, err = openPacket(parent); err != nil {
		return nil, err
	}
	if err = setMark(p.probes, bpf.ProbeMark); err != nil {
		return nil, fmt.Errorf("mark probe socket: %w", err)
	}
	if err = joinAllNodes(p.probes, parent); err != nil {
		return nil, fmt.Errorf("join the group of all nodes: %w", err)
	}
	if p.claims, err = openPacket(parent); err != nil {
		return nil, err
	}
	if p.groups, err = openGroups(parent); err != nil {
		return nil, err
	}
	return p, nil
}

// Link reads the parent's state. Its error wraps bpf.ErrNoDevice if the parent does not exist.
func (p *Parent) Link() (PortLink, error) {
	l, err := p.link(p.index)
	if err != nil {
		return PortLink{}, err
	}
	return PortLink{Name: l.Attrs().Name, MAC: l.Attrs().HardwareAddr}, nil
}

func (p *Parent) link(index int) (netlink.Link, error) {
	l, err := p.nl.LinkByIndex(index)
	if _, missing := errors.AsType[netlink.LinkNotFoundError](err); missing {
		err = bpf.ErrNoDevice
	}
	if err != nil {
		return nil, fmt.Errorf("read parent %d: %w", index, err)
	}
	return l, nil
}

// bridgeOf returns the bridge that an interface is, or of which it is a VLAN, and nil for others.
func (p *Parent) bridgeOf(index int) (netlink.Link, error) {
	l, err := p.link(index)
	if err != nil {
		return nil, err
	}
	if v, ok := l.(*netlink.Vlan); ok && v.NetNsID < 0 {
		return p.bridgeOf(v.ParentIndex)
	}
	if l.Type() != "bridge" && l.Type() != wholelist.OVSKind {
		return nil, nil
	}
	return l, nil
}

// SendProbe sends a frame that the observer also reflects to the parent's own children.
func (p *Parent) SendProbe(frame []byte) error { return transmit(p.probes, frame) }

// Send sends a frame.
func (p *Parent) Send(frame []byte) error { return transmit(p.claims, frame) }

// Close closes the sockets.
func (p *Parent) Close() error {
	var errs []error
	for _, c := range []*packet.Conn{p.probes, p.claims} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	if p.nl != nil {
		p.nl.Close()
	}
	if p.counts != nil {
		p.counts.Close()
	}
	return errors.Join(append(errs, p.groups.close())...)
}

// Carrier reports whether the parent has carrier, and how often it has lost it since the device was created: two reads
// of the carrier would miss a loss in between. A bridge has carrier while any port has it, such as that of a pod, so
// its ports to the network count too.
func (p *Parent) Carrier() (up bool, losses uint32, err error) {
	up, losses, err = p.carrier(p.index)
	if err != nil || p.bridge == nil {
		return up, losses, err
	}
	ports, err := p.ports()
	if err != nil {
		return false, 0, err
	}
	outside := len(ports) == 0
	for _, port := range ports {
		has, lost, err := p.carrier(port.Attrs().Index)
		if err != nil {
			return false, 0, err
		}
		outside, losses = outside || has, losses+lost
	}
	return up && outside, losses, nil
}

// ports returns the ports of the parent's bridge that lead to the network.
func (p *Parent) ports() ([]netlink.Link, error) {
	links, err := p.nl.LinkList()
	ports, unread := wholelist.Uplinks(links, p.bridge)
	if unread != nil || err != nil && (len(ports) == 0 || !errors.Is(err, netlink.ErrDumpInterrupted)) { // they stay while others come and go
		return nil, fmt.Errorf("list the ports of bridge %s: %w", p.bridge.Attrs().Name, errors.Join(unread, err))
	}
	return ports, nil
}

// Uplinks returns the ports of the bridge of Open vSwitch on which the parent is a VLAN, and the VLAN. Other parents have
// none.
func (p *Parent) Uplinks() (vid uint16, ports []int, err error) {
	if p.bridge == nil || p.bridge.Type() != wholelist.OVSKind {
		return 0, nil, nil
	}
	l, err := p.link(p.index)
	if err != nil {
		return 0, nil, err
	}
	vlan, ok := l.(*netlink.Vlan)
	if !ok || vlan.ParentIndex != p.bridge.Attrs().Index || vlan.VlanProtocol == netlink.VLAN_PROTOCOL_8021AD {
		return 0, nil, nil
	}
	links, err := p.ports()
	for _, port := range links {
		ports = append(ports, port.Attrs().Index)
	}
	return uint16(vlan.VlanId), ports, err
}

func (p *Parent) carrier(index int) (up bool, losses uint32, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: p.counts}
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(index)
	request.AddData(message)
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if errors.Is(err, unix.ENODEV) {
		err = bpf.ErrNoDevice
	}
	if err != nil {
		return false, 0, fmt.Errorf("read the carrier of interface %d: %w", index, err)
	}
	for _, answer := range answers {
		attributes, err := nl.ParseRouteAttr(answer[unix.SizeofIfInfomsg:])
		if err != nil {
			return false, 0, err
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.IFLA_CARRIER_DOWN_COUNT && len(a.Value) == 4 {
				return nl.DeserializeIfInfomsg(answer).Flags&unix.IFF_LOWER_UP != 0, binary.NativeEndian.Uint32(a.Value), nil
			}
		}
	}
	return false, 0, errors.New("the kernel does not report IFLA_CARRIER_DOWN_COUNT")
}

// Has reports whether the parent itself, the bridge that it is a port of, or a VLAN on that bridge has the address. Of
// Open vSwitch, all bridges and internal ports of the node count.
func (p *Parent) Has(addr netip.Addr) (bool, error) {
	has, err := p.has(p.index, addr)
	if err != nil || has {
		return has, err
	}
	l, err := p.nl.LinkByIndex(p.index)
	if err != nil || l.Attrs().MasterIndex == 0 {
		return false, err
	}
	master := l.Attrs().MasterIndex
	if has, err = p.has(master, addr); err != nil || has {
		return has, err
	}
	links, err := wholelist.Of(p.nl.LinkList)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) { // they stay while others come and go
		return false, fmt.Errorf("list the VLANs of bridge %d: %w", master, err)
	}
	bridges := map[int]bool{master: true}
	if slices.ContainsFunc(links, func(l netlink.Link) bool { return bridges[l.Attrs().Index] && l.Type() == wholelist.OVSKind }) {
		for _, l := range links {
			bridges[l.Attrs().Index] = l.Type() == wholelist.OVSKind
		}
	}
	for _, l := range links {
		a := l.Attrs()
		if bridges[a.Index] || l.Type() == "vlan" && bridges[a.ParentIndex] && a.NetNsID < 0 {
			if has, err = p.has(a.Index, addr); err != nil || has {
				return has, err
			}
		}
	}
	return false, nil
}

func (p *Parent) has(index int, addr netip.Addr) (bool, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: p.counts}
	message := nl.NewIfAddrmsg(nl.GetIPFamily(addr.AsSlice()))
	message.Index = uint32(index)
	request.AddData(message)
	answers, err := wholelist.Of(func() ([][]byte, error) { return request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWADDR) })
	if err != nil {
		return false, fmt.Errorf("list the addresses of interface %d: %w", index, err)
	}
	for _, answer := range answers {
		attributes, err := nl.ParseRouteAttr(answer[unix.SizeofIfAddrmsg:])
		if err != nil {
			return false, err
		}
		for _, a := range attributes {
			// IPv6 has no IFA_LOCAL. With a peer, IFA_ADDRESS is the peer's, which is in use as well.
			if a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS {
				if other, ok := netip.AddrFromSlice(a.Value); ok && other == addr {
					return true, nil
				}
			}
		}
	}
	return false, nil
}

// openCounts opens the socket for requests that the library does not have, in the calling thread's
// network namespace. The kernel filters its lists by the interface, since a node may have many addresses.
func openCounts() (*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	if err := unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1); err != nil {
		s.Close()
		return nil, os.NewSyscallError("setsockopt NETLINK_GET_STRICT_CHK", err)
	}
	return &nl.SocketHandle{Socket: s}, nil
}
