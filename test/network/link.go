// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
)

// AddBridge adds a bridge without spanning tree and multicast snooping, as an unmanaged switch. It is
// not for concurrent use.
func (n *Namespace) AddBridge(name string) (err error) {
	defer must.CatchIn(&err, "add bridge %s in %s", name, n.Name)
	must.OK(n.startRecord())
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	snooping := false
	must.OK(n.links.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}))
	return n.up(name)
}

// Snoop makes a bridge a switch with MLD and IGMP snooping, and with a querier: it passes multicast to the members
// of a group only, except for frames to all hosts. It returns before the querier counts, which takes 100 ms.
func (n *Namespace) Snoop(bridge string) (err error) {
	defer must.CatchIn(&err, "make bridge %s in %s snoop", bridge, n.Name)
	index := must.Value(n.Index(bridge))
	return n.Do(func() error {
		request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
		header := nl.NewIfInfomsg(unix.AF_UNSPEC)
		header.Index = int32(index)
		request.AddData(header)
		info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
		info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
		data := info.AddRtAttr(nl.IFLA_INFO_DATA, nil)
		data.AddRtAttr(nl.IFLA_BR_MCAST_QUERY_RESPONSE_INTVL, nl.Uint64Attr(10)) // hundredths of a second
		data.AddRtAttr(nl.IFLA_BR_MCAST_SNOOPING, nl.Uint8Attr(1))
		data.AddRtAttr(nl.IFLA_BR_MCAST_QUERIER, nl.Uint8Attr(1))
		request.AddData(info)
		_, err := request.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
}

// Plug connects a new interface of the namespace with a new port of a bridge in the namespace sw; both ends are up
// afterwards. A nil mac leaves the choice to the kernel.
func (n *Namespace) Plug(iface string, mac net.HardwareAddr, sw *Namespace, port, bridge string) (err error) {
	defer must.Catch(&err)
	must.OK(sw.addPair(port, must.Value(sw.Index(bridge)), n, iface, mac))
	must.OK(sw.up(port))
	must.OK(n.up(iface))
	return sw.up(port) // it has a carrier now
}

// AddPair connects a new interface of the namespace with a new one of another, as a cable does. Both are down.
func (n *Namespace) AddPair(name string, other *Namespace, peer string) error {
	return n.addPair(name, 0, other, peer, nil)
}

func (n *Namespace) addPair(name string, master int, other *Namespace, peer string, mac net.HardwareAddr) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = name, master
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(other.handle)}
	if err := n.links.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect %s in %s with %s in %s: %w", name, n.Name, peer, other.Name, err)
	}
	return nil
}

// AddChild makes a child of one of the namespace's interfaces an interface of a pod: a macvlan, an
// ipvlan or a VLAN. It is down.
func (n *Namespace) AddChild(parent string, child netlink.Link, pod *Namespace, iface string) (err error) {
	defer must.Catch(&err)
	index, attrs := must.Value(n.Index(parent)), child.Attrs()
	attrs.Name, attrs.ParentIndex, attrs.Namespace = iface, index, netlink.NsFd(pod.handle)
	attrs.TxQLen = -1 // the kernel's choice
	must.Done(n.links.LinkAdd(child), "add a %s of %s in %s to %s", child.Type(), parent, n.Name, pod.Name)
	return nil
}

// AddMacvlan is AddChild for a macvlan in mode bridge. A nil mac leaves the choice to the kernel.
func (n *Namespace) AddMacvlan(parent string, mac net.HardwareAddr, pod *Namespace, iface string) error {
	return n.AddChild(parent, &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{HardwareAddr: mac}, Mode: netlink.MACVLAN_MODE_BRIDGE}, pod, iface)
}

// Replug moves a port of the namespace to another of its bridges.
func (n *Namespace) Replug(port, bridge string) error {
	return n.change("plug into "+bridge, port, func(link netlink.Link) error { return n.links.LinkSetMaster(link, must.Value(n.link(bridge))) })
}

// SetUp raises or cuts a link of the namespace.
func (n *Namespace) SetUp(name string, up bool) error {
	if up {
		return n.up(name)
	}
	return n.change("set down", name, n.links.LinkSetDown)
}

// AddAddr gives the interface an address with its prefix length. An IPv6 address skips duplicate address detection,
// and is answered for on return if the interface is up.
func (n *Namespace) AddAddr(name string, addr netip.Prefix) (err error) {
	defer must.CatchIn(&err, "add %s to %s in %s", addr, name, n.Name)
	link := must.Value(n.link(name))
	a := &netlink.Addr{IPNet: ipNet(addr)}
	if addr.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	must.OK(n.links.AddrReplace(link, a))
	if addr.Addr().Is6() && link.Attrs().Flags&net.FlagUp != 0 {
		return n.awaitSolicited(name, addr.Addr())
	}
	return nil
}

// AddDefaultRoute sends everything that has no other route out of the interface, as to a neighbour.
func (n *Namespace) AddDefaultRoute(name string) error {
	return n.change("add a default route by", name, func(link netlink.Link) error {
		all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		return n.links.RouteReplace(&netlink.Route{Dst: all, LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK})
	})
}

// AddRoute sends what is for dst by the router via, which must be a neighbour. An invalid dst stands
// for everything that has no other route.
func (n *Namespace) AddRoute(dst netip.Prefix, via netip.Addr) error {
	if !dst.IsValid() {
		dst = netip.PrefixFrom(via, 0).Masked()
	}
	if err := n.links.RouteReplace(&netlink.Route{Dst: ipNet(dst), Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("add a route to %s by %s in %s: %w", dst, via, n.Name, err)
	}
	return nil
}

// MAC returns the hardware address of an interface of the namespace.
func (n *Namespace) MAC(name string) (_ net.HardwareAddr, err error) {
	defer must.Catch(&err)
	return must.Value(n.link(name)).Attrs().HardwareAddr, nil
}

// Index returns the ifindex of an interface of the namespace.
func (n *Namespace) Index(name string) (_ int, err error) {
	defer must.Catch(&err)
	return must.Value(n.link(name)).Attrs().Index, nil
}

// DeleteLink removes an interface of the namespace, and its peer with it. It is no error if there is none.
func (n *Namespace) DeleteLink(name string) error {
	link, err := n.links.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		err = n.links.LinkDel(link)
	}
	if err != nil {
		return fmt.Errorf("delete %s in %s: %w", name, n.Name, err)
	}
	return nil
}

// Ports returns the ports of a bridge of the namespace by their ifindex.
func (n *Namespace) Ports(bridge string) (_ map[int]string, err error) {
	defer must.CatchIn(&err, "list the ports of %s in %s", bridge, n.Name)
	index := must.Value(n.Index(bridge))
	ports := map[int]string{}
	for _, l := range must.Value(n.links.LinkList()) {
		if l.Attrs().MasterIndex == index {
			ports[l.Attrs().Index] = l.Attrs().Name
		}
	}
	return ports, nil
}

func (n *Namespace) link(name string) (netlink.Link, error) {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find interface %s in %s: %w", name, n.Name, err)
	}
	return link, nil
}

// up sets an interface up. If it has a carrier, up returns once the kernel has taken note of that: until then,
// the interface drops what it is to send.
func (n *Namespace) up(name string) error {
	if err := n.change("set up", name, n.links.LinkSetUp); err != nil {
		return err
	}
	return settled(fmt.Sprintf("%s in %s to send", name, n.Name), func() (bool, error) {
		link, err := n.link(name)
		if err != nil {
			return false, err
		}
		a := link.Attrs()
		return a.RawFlags&unix.IFF_LOWER_UP == 0 || a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown, nil
	})
}

// settled waits until the kernel has done its part. An error of done ends the wait.
func settled(what string, done func() (bool, error)) error {
	return await.Until(context.Background(), 5*time.Second, what, func(context.Context) error {
		ok, err := done()
		if err != nil {
			return await.Never(err)
		}
		if !ok {
			return errors.New("not yet")
		}
		return nil
	})
}

// change does something to an interface. what says that in an error.
func (n *Namespace) change(what, name string, do func(netlink.Link) error) (err error) {
	defer must.CatchIn(&err, "%s %s in %s", what, name, n.Name)
	return do(must.Value(n.links.LinkByName(name)))
}

// SetIsolated makes a port of a bridge an isolated one, or an ordinary one
// again: no frame passes between two isolated ports.
func (n *Namespace) SetIsolated(port string, isolated bool) error {
	return n.change(fmt.Sprintf("set isolated=%t", isolated), port, func(link netlink.Link) error { return n.links.LinkSetIsolated(link, isolated) })
}

// refusal is the priority of the rules of Refuse. They stand before the table main.
const refusal = 100

// Forward makes the namespace a router of both families.
func (n *Namespace) Forward() (err error) {
	defer must.CatchIn(&err, "forward packets in %s", n.Name)
	return n.Do(func() error {
		const four, six = "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"
		return errors.Join(os.WriteFile(four, []byte("1"), 0), os.WriteFile(six, []byte("1"), 0))
	})
}

// Refuse makes a router drop what it receives from src for dst, without an answer.
func (n *Namespace) Refuse(src, dst netip.Prefix) error {
	if err := n.links.RuleAdd(refuse(src, dst)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("refuse packets from %s to %s in %s: %w", src, dst, n.Name, err)
	}
	return nil
}

// Admit ends what Refuse began. It is no error if nothing was refused.
func (n *Namespace) Admit(src, dst netip.Prefix) error {
	if err := n.links.RuleDel(refuse(src, dst)); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("admit packets from %s to %s in %s: %w", src, dst, n.Name, err)
	}
	return nil
}

func refuse(src, dst netip.Prefix) *netlink.Rule {
	r := netlink.NewRule()
	r.Priority, r.Type, r.Family = refusal, unix.FR_ACT_BLACKHOLE, unix.AF_INET
	if src.Addr().Is6() {
		r.Family = unix.AF_INET6
	}
	r.Src, r.Dst = ipNet(src), ipNet(dst)
	return r
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// awaitSolicited waits until the kernel hears solicitations for an address of an
// interface: it joins their group (RFC 4291, 2.7.1) some time after it took the address.
func (n *Namespace) awaitSolicited(name string, addr netip.Addr) error {
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	low := addr.As16()
	copy(group[13:], low[13:])
	return settled(fmt.Sprintf("%s in %s to hear solicitations for %s", name, n.Name, addr), func() (bool, error) {
		return n.hasGroup(name, hex.EncodeToString(group[:]))
	})
}

// hasGroup reports whether an interface is in a multicast group, in hexadecimal.
func (n *Namespace) hasGroup(name, group string) (joined bool, err error) {
	err = n.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/igmp6")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 2 && f[1] == name && f[2] == group {
				joined = true
			}
		}
		return err
	})
	return joined, err
}
