// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hostlink

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// The pod's end has its addresses for its node alone. Neither does the pod choose them, nor do others
// reach the pod by them.
func TestTheAddressesOfThePodsEndAreForItsNodeAlone(t *testing.T) {
	r, pod, e := linked(t, "10.0.0.7/24", "fd00::7/64")
	for range 2 {
		for _, dst := range []string{nodeAddr4, nodeAddr6, "10.96.0.1", "fd96::1", routerAddr4, routerAddr6, "192.0.2.9", "2001:db8::9", "224.0.0.251", "ff02::fb%eth0", podEnd4.String()} {
			for _, device := range []string{"", "host-eth0"} {
				source := r.source(pod, dst, device)
				check.That(t, source.Compare(podEnd4) != 0 && source.WithZone("") != podEnd6, "to %s by %q: the source is %s", dst, device, source)
			}
		}
		for _, group := range r.groups(pod, "host-eth0") {
			toAll := group == "ff020000000000000000000000000001" || group == "ff010000000000000000000000000001"
			check.That(t, toAll, "host-eth0 is in group %s, and announces that", group)
		}
		r.wantHeard(pod, "10.0.0.7")
		// The pod was made by an earlier agent: the repair gives its end the addresses.
		link := r.link(pod, "host-eth0")
		addrs := check.Value(pod.Links().AddrList(link, netlink.FAMILY_ALL))(r)
		for i := range addrs {
			check.OK(r, pod.Links().AddrDel(link, &addrs[i]))
		}
		check.OK(r, errors.Join(pod.Links().LinkSetARPOn(link), pod.Links().LinkSetMulticastOn(link)))
		r.wantBroken(e)
		check.OK(r, r.links.Repair())
		check.OK(r, r.links.Check(e))
		r.wantBothWays(pod)
	}
}

// source returns the address from which a pod would send, the zero Addr if it could not.
func (r *rig) source(pod *network.Namespace, dst, device string) (source netip.Addr) {
	r.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }), err)
	}}
	_ = pod.Do(func() error {
		c, err := dialer.Dial("udp", net.JoinHostPort(dst, "9"))
		if err != nil {
			return err
		}
		source = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
		return c.Close()
	})
	return source
}

// groups returns the IPv6 groups of a link.
func (r *rig) groups(in *network.Namespace, link string) (groups []string) {
	r.Helper()
	check.OK(r, in.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/igmp6")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); f[1] == link {
				groups = append(groups, f[2])
			}
		}
		return err
	}))
	return groups
}

// wantHeard fails the test unless a pod hears what the router sends to its address, and only that.
func (r *rig) wantHeard(pod *network.Namespace, address string) {
	r.Helper()
	var server net.PacketConn
	check.OK(r, pod.Do(func() (err error) { server, err = net.ListenPacket("udp4", ":9"); return err }))
	defer server.Close()
	mac := check.Value(pod.MAC("eth0"))(r)
	link := r.link(r.router, "eth0")
	check.OK(r, putNeighbour(r.router.Links(), link, podEnd4, mac, mend))
	check.OK(r, r.router.Links().RouteReplace(Route{Dst: netip.PrefixFrom(podEnd4, 32), Table: mainTable}.through(link)))
	for _, dst := range []string{podEnd4.String(), address} {
		check.OK(r, r.router.Do(func() error {
			c, err := net.Dial("udp4", net.JoinHostPort(dst, "9"))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte(dst))
			return err
		}))
	}
	heard := make([]byte, 64)
	check.OK(r, server.SetReadDeadline(time.Now().Add(time.Minute)))
	n, _, err := server.ReadFrom(heard)
	check.That(r, err == nil && string(heard[:n]) == address, "the pod heard what was sent to %s, %v; want %s", heard[:n], err, address)
}
