// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package pod

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/ndp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// Any host of the segment can send the frames of a router.
func TestAnInterfaceTakesFromRoutersOnlyIfItsPoolSaysSo(t *testing.T) {
	all := []string{"MTU", "address", "default route", "prefix"}
	for _, row := range []struct {
		rule string
		// up: the interface is up before its IPAM, as that of a VF.
		up, ignore bool
		want       []string
		way        string
	}{
		{"Accept", false, false, all, "10.0.0.9"},
		{"Ignore", false, true, nil, "10.0.0.1"},
		{"Ignore, and it heard a router before", true, true, nil, "10.0.0.1"},
	} {
		t.Run(row.rule, func(t *testing.T) {
			node, inside, router := network.New(t, "node"), network.New(t, "pod"), network.New(t, "router")
			check.OK(t, node.AddPair("p0", router, "eth0"))
			check.OK(t, node.SetUp("p0", true))
			check.OK(t, router.SetUp("eth0", true))
			check.OK(t, node.AddMacvlan("p0", nil, inside, "eth0"))
			check.OK(t, router.AddAddr("eth0", netip.MustParsePrefix("10.0.0.1/24")))
			check.OK(t, router.AddAddr("eth0", netip.MustParsePrefix("fe80::1/64")))
			heard := 0
			advertise := func() {
				t.Helper()
				sendAdvertisement(t, router)
				heard++
				await(t, inside, "snmp6", "Icmp6InRouterAdvertisements", heard)
			}
			if row.up {
				check.OK(t, inside.SetUp("eth0", true))
				advertise()
				check.List(t, read(t, inside), all, "it has heard a router, and taken")
			}
			if row.ignore {
				check.OK(t, withFinder(node, func(f *Finder) error { return f.IgnoreRouters(inside.Path(), "eth0") }))
			}
			// From here on, it is as after the answer of IPAM.
			check.OK(t, inside.SetUp("eth0", true))
			check.OK(t, inside.AddAddr("eth0", netip.MustParsePrefix("10.0.0.2/24")))
			check.OK(t, inside.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.0.0.1")))
			// The kernel redirects to a neighbour that it knows.
			check.OK(t, inside.Links().NeighAdd(&netlink.Neigh{
				LinkIndex: check.Value(inside.Index("eth0"))(t), State: unix.NUD_PERMANENT, IP: net.IPv4(10, 0, 0, 9), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9},
			}))
			advertise()
			sendRedirect(t, router)
			await(t, inside, "snmp", "InRedirects", 1)
			check.List(t, read(t, inside), row.want, "taken")
			check.Equal(t, way(t, inside), row.way, "the next hop of 192.0.2.1")
		})
	}
}

// sendAdvertisement sends what a router says of itself: it is the default router, it has a prefix for
// addresses, and the MTU is 1400.
func sendAdvertisement(t *testing.T, router *network.Namespace) {
	t.Helper()
	check.OK(t, router.Do(func() error {
		iface, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		conn, _, err := ndp.Listen(iface, ndp.LinkLocal)
		if err != nil {
			return err
		}
		defer conn.Close()
		return conn.WriteTo(&ndp.RouterAdvertisement{
			CurrentHopLimit: 64, RouterLifetime: time.Hour, RouterSelectionPreference: ndp.High,
			Options: []ndp.Option{
				&ndp.PrefixInformation{
					PrefixLength: 64, OnLink: true, AutonomousAddressConfiguration: true, ValidLifetime: time.Hour,
					PreferredLifetime: time.Hour, Prefix: netip.MustParseAddr("2001:db8::"),
				},
				ndp.NewMTU(1400),
			},
		}, nil, netip.IPv6LinkLocalAllNodes())
	}))
}

// sendRedirect sends a redirect of the gateway: 10.0.0.9 leads to 192.0.2.1 (RFC 792). It is about an
// echo reply, for which the kernel needs no socket.
func sendRedirect(t *testing.T, router *network.Namespace) {
	t.Helper()
	of := make([]byte, 28) // the packet of the pod: IPv4 header and 8 octets
	of[0], of[8], of[9] = 0x45, 64, unix.IPPROTO_ICMP
	binary.BigEndian.PutUint16(of[2:], 28)
	copy(of[12:], []byte{10, 0, 0, 2})
	copy(of[16:], []byte{192, 0, 2, 1})
	binary.BigEndian.PutUint16(of[10:], checksum(of[:20]))
	binary.BigEndian.PutUint16(of[22:], checksum(of[20:]))
	message := append([]byte{5, 1, 0, 0, 10, 0, 0, 9}, of...)
	binary.BigEndian.PutUint16(message[2:], checksum(message))
	check.OK(t, router.Do(func() error {
		conn, err := net.ListenPacket("ip4:icmp", "10.0.0.1")
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.WriteTo(message, &net.IPAddr{IP: net.IPv4(10, 0, 0, 2)})
		return err
	}))
}

// checksum is that of RFC 1071 over an even number of octets.
func checksum(of []byte) uint16 {
	var sum uint32
	for i := 0; i < len(of); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(of[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// await waits until a counter of a namespace has a value.
func await(t *testing.T, ns *network.Namespace, file, counter string, want int) {
	t.Helper()
	check.Eventually(t, time.Minute, counter, func() error {
		var text []byte
		err := ns.Do(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/" + file); return err })
		if err != nil {
			return err
		}
		fields := strings.Fields(string(text))
		for i, f := range fields {
			if file == "snmp6" && f == counter && fields[i+1] == fmt.Sprint(want) {
				return nil
			}
		}
		if file == "snmp" {
			var names []string
			for line := range strings.Lines(string(text)) {
				columns := strings.Fields(line)
				for i, name := range names {
					if len(names) == len(columns) && name == counter && columns[i] == fmt.Sprint(want) {
						return nil
					}
				}
				names = columns
			}
		}
		return fmt.Errorf("it is not %d", want)
	})
}

// read names what the interface of a pod has from routers.
func read(t *testing.T, ns *network.Namespace) (taken []string) {
	t.Helper()
	check.OK(t, ns.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if r.Gw.IsLinkLocalUnicast() {
				taken = append(taken, "default route")
			}
			if r.Dst != nil && r.Dst.String() == "2001:db8::/64" {
				taken = append(taken, "prefix")
			}
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V6)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if a.Flags&unix.IFA_F_PERMANENT == 0 {
				taken = append(taken, "address")
			}
		}
		mtu, err := os.ReadFile("/proc/sys/net/ipv6/conf/eth0/mtu")
		if err == nil && string(mtu) != "1500\n" {
			taken = append(taken, "MTU")
		}
		return err
	}))
	slices.Sort(taken)
	return slices.Compact(taken)
}

// way returns the next hop of a pod to a host behind the gateway.
func way(t *testing.T, ns *network.Namespace) (to string) {
	t.Helper()
	check.OK(t, ns.Do(func() error {
		routes, err := netlink.RouteGet(net.IPv4(192, 0, 2, 1))
		if err == nil {
			to = routes[0].Gw.String()
		}
		return err
	}))
	return to
}
