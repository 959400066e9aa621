// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !guest

package hostlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// mesh is how a sidecar takes over the connections of a pod. LOCAL, ALL and PASS in its rules stand for
// the loopback address, for all addresses, and for the source of a sidecar that calls its pod.
type mesh struct {
	name, rules     string
	inbound, output int
	// uid and mark are those of the sidecar's own connections, divert is the mark of packets for it.
	uid, mark, divert int
	// transparent: the sidecar calls its pod from the address of the client.
	transparent bool
}

// istioOutput is what sidecars of Istio do with the connections that the pod opens, and with its DNS.
const istioOutput = `
*raw
-A OUTPUT -p udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1
-A OUTPUT -p udp --sport 15053 -m owner --uid-owner 1337 -j CT --zone 2
-A OUTPUT -p udp --dport 53 -j CT --zone 2
-A PREROUTING -p udp --sport 53 -j CT --zone 1
COMMIT
*nat
:ISTIO_INBOUND -
:ISTIO_IN_REDIRECT -
:ISTIO_OUTPUT -
:ISTIO_REDIRECT -
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A OUTPUT -p udp --dport 53 -m owner --uid-owner 1337 -j RETURN
-A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 15053
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A ISTIO_OUTPUT -s PASS -o lo -j RETURN
-A ISTIO_OUTPUT ! -d LOCAL -o lo -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d LOCAL -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
`

var meshes = []mesh{
	{name: "Istio, REDIRECT", inbound: 15006, output: 15001, uid: 1337, rules: istioOutput + `
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
COMMIT
`},
	{name: "Istio, TPROXY", inbound: 15006, output: 15001, uid: 1337, mark: 1337, divert: 1337, transparent: true, rules: istioOutput + `
COMMIT
*mangle
:ISTIO_INBOUND -
:ISTIO_DIVERT -
:ISTIO_TPROXY -
-A PREROUTING -p tcp -m mark --mark 1337 -j CONNMARK --save-mark
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -p tcp -o lo -m mark --mark 1337 -j RETURN
-A OUTPUT -p tcp -m connmark --mark 1337 -j CONNMARK --restore-mark
-A ISTIO_INBOUND -p tcp -m mark --mark 1337 -j RETURN
-A ISTIO_INBOUND -p tcp -s PASS -i lo -j RETURN
-A ISTIO_INBOUND -p tcp -i lo -m mark ! --mark 1337 -j RETURN
-A ISTIO_INBOUND -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT
-A ISTIO_INBOUND -p tcp -j ISTIO_TPROXY
-A ISTIO_DIVERT -j MARK --set-mark 1337
-A ISTIO_DIVERT -j ACCEPT
-A ISTIO_TPROXY ! -d LOCAL -p tcp -j TPROXY --tproxy-mark 1337/0xffffffff --on-port 15006
COMMIT
`},
	{name: "Istio, ambient", inbound: 15006, output: 15001, mark: 0x539, divert: 0x111, transparent: true, rules: `
*mangle
:ISTIO_OUTPUT -
:ISTIO_PRERT -
-A PREROUTING -j ISTIO_PRERT
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_OUTPUT -m connmark --mark 0x111/0xfff -j CONNMARK --restore-mark
-A ISTIO_PRERT -m mark --mark 0x539/0xfff -j CONNMARK --set-xmark 0x111/0xfff
-A ISTIO_PRERT ! -d LOCAL -i lo -p tcp -j ACCEPT
-A ISTIO_PRERT -p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ISTIO_PRERT ! -d LOCAL -p tcp -m mark ! --mark 0x539/0xfff -j TPROXY --on-port 15006 --on-ip ALL --tproxy-mark 0x111/0xfff
COMMIT
*nat
:ISTIO_OUTPUT -
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT
-A ISTIO_OUTPUT ! -d LOCAL -o lo -j ACCEPT
-A ISTIO_OUTPUT ! -d LOCAL -p tcp -m mark ! --mark 0x539/0xfff -j REDIRECT --to-ports 15001
COMMIT
`},
	{name: "Linkerd", inbound: 4143, output: 4140, uid: 2102, rules: `
*nat
:PROXY_INIT_REDIRECT -
:PROXY_INIT_OUTPUT -
-A PREROUTING -j PROXY_INIT_REDIRECT
-A OUTPUT -j PROXY_INIT_OUTPUT
-A PROXY_INIT_REDIRECT -p tcp -m multiport --dports 4190,4191,4567,4568 -j RETURN
-A PROXY_INIT_REDIRECT -p tcp -j REDIRECT --to-ports 4143
-A PROXY_INIT_OUTPUT -m owner --uid-owner 2102 -j RETURN
-A PROXY_INIT_OUTPUT -o lo -j RETURN
-A PROXY_INIT_OUTPUT -p tcp -j REDIRECT --to-ports 4140
COMMIT
`},
}

// A sidecar serves all clients of its pod, and the pod reaches all through it. Its rules come after the
// pod's host link.
func TestAServiceMeshWorks(t *testing.T) {
	for _, m := range meshes {
		t.Run(m.name, func(t *testing.T) {
			r := newRig(t)
			beyond := r.beyond()
			pod, entries := r.pod("a", []string{"10.0.0.7/24", "fd00::7/64"})
			check.OK(r, pod.SetUp("lo", true))
			check.OK(r, pod.Links().AddrAdd(r.link(pod, "lo"), &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("::6/128"))}))
			// Some distributions check the way back of each source strictly.
			r.sysctls(pod, map[string]string{"ipv4/conf/all/rp_filter": "1"})
			check.OK(r, r.links.Make(entries[0]))
			for _, family := range []struct{ udp, net, own, pass, local, all, node, router, beyond string }{
				{"udp4", "tcp4", "10.0.0.7", "127.0.0.6", "127.0.0.1", "0.0.0.0", nodeAddr4, routerAddr4, "192.0.2.9"},
				{"udp6", "tcp6", "fd00::7", "::6", "::1", "::", nodeAddr6, routerAddr6, "2001:db8::9"},
			} {
				m.install(r, pod, family.net, strings.NewReplacer("LOCAL", family.local, "ALL", family.all, "PASS", family.pass))
				m.sidecar(r, pod, family.net, m.inbound, family.pass)
				m.sidecar(r, pod, family.net, m.output, family.pass)
				r.serve(pod, family.net, ":8080")
				for _, client := range []struct {
					from *network.Namespace
					addr string
				}{{r.node, family.node}, {r.router, family.router}, {beyond, family.beyond}} {
					app := family.pass
					if m.transparent {
						app = client.addr
					}
					dst := net.JoinHostPort(family.own, "8080")
					r.wantAnswer(client.from, family.net, dst, fmt.Sprintf("sidecar saw %s for %s, server saw %s", client.addr, dst, app))
				}
				for _, server := range []struct {
					at   *network.Namespace
					addr string
				}{{r.node, family.node}, {r.router, family.router}} {
					r.serve(server.at, family.net, ":80")
					dst := net.JoinHostPort(server.addr, "80")
					r.wantAnswer(pod, family.net, dst, fmt.Sprintf("sidecar saw %s for %s, server saw %s", family.own, dst, family.own))
				}
				if m.uid == 1337 {
					server := net.JoinHostPort(family.node, "53")
					saw := func(peer netip.AddrPort) string { return "server saw " + peer.Addr().String() }
					r.serveDNS(r.node, family.udp, server, 0, saw)
					r.serveDNS(pod, family.udp, net.JoinHostPort(family.local, "15053"), m.uid, func(netip.AddrPort) string {
						return "sidecar, " + r.askDNS(pod, family.udp, server, m.uid)
					})
					check.Equal(r, r.askDNS(pod, family.udp, server, 0), "sidecar, server saw "+family.own, "DNS:")
				}
			}
			check.OK(r, r.links.Check(entries[0]))
		})
	}
}

func TestTheTableOfMarksIsRepaired(t *testing.T) {
	r, pod, e := linked(t, "10.0.0.7/24")
	check.OK(r, r.links.Check(e))
	for _, spoil := range []string{"flush ruleset", "flush chain inet fenceline-eth0 input"} {
		check.OK(r, pod.Command(t.Context(), "nft", spoil).Run())
		check.Says(t, r.wantBroken(e), "table inet fenceline-eth0")
		check.OK(r, r.links.Repair())
		check.OK(r, r.links.Check(e))
	}
}

// install writes the rules of a mesh into a pod, and routes the packets for a transparent sidecar to it.
func (m *mesh) install(r *rig, pod *network.Namespace, family string, words *strings.Replacer) {
	r.Helper()
	program, dst := "iptables-restore", netip.MustParsePrefix("0.0.0.0/0")
	if family == "tcp6" {
		program, dst = "ip6tables-restore", netip.MustParsePrefix("::/0")
	}
	restore := pod.Command(r.Context(), program)
	restore.Stdin = strings.NewReader(words.Replace(m.rules))
	output, err := restore.CombinedOutput()
	check.Must(r, err == nil, "%s: %v: %s", program, err, output)
	if m.divert == 0 {
		return
	}
	check.OK(r, pod.Links().RouteAdd(&netlink.Route{
		LinkIndex: r.link(pod, "lo").Attrs().Index, Dst: ipNet(dst), Table: 133, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	}))
	rule := netlink.NewRule()
	rule.Family, rule.Mark, rule.Table = families[0], uint32(m.divert), 133
	if dst.Addr().Is6() {
		rule.Family = families[1]
	}
	if m.divert == 0x111 {
		mask := uint32(0xfff)
		rule.Mask = &mask
	}
	check.OK(r, pod.Links().RuleAdd(rule))
}

// sidecar serves a port of the pod: it calls the destination that the client meant.
func (m *mesh) sidecar(r *rig, pod *network.Namespace, family string, port int, pass string) {
	r.Helper()
	level, transparent := unix.SOL_IP, unix.IP_TRANSPARENT
	if family == "tcp6" {
		level, transparent = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	divert := m.transparent && port == m.inbound
	set := func(of syscall.RawConn, mark int) (err error) {
		return errors.Join(of.Control(func(fd uintptr) {
			if divert {
				err = unix.SetsockoptInt(int(fd), level, transparent, 1)
			}
			if divert || m.uid == 0 { // only these sidecars mark their connections
				err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark))
			}
		}), err)
	}
	listening := func(_, _ string, c syscall.RawConn) error { return set(c, 0) }
	r.listen(pod, family, fmt.Sprintf(":%d", port), listening, func(c *net.TCPConn) error {
		peer, dst := addrPort(c.RemoteAddr()), addrPort(c.LocalAddr())
		dialer := net.Dialer{Timeout: 3 * time.Second, Control: func(_, _ string, c syscall.RawConn) error { return set(c, m.mark) }}
		if divert {
			dialer.LocalAddr = &net.TCPAddr{IP: peer.Addr().AsSlice()}
		} else if err := meant(c, level, &dst); err != nil {
			return err
		} else if port == m.inbound {
			dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(pass)}
		}
		return pod.Do(func() error {
			if !divert { // Istio runs a transparent sidecar as root
				if _, err := unix.SetfsuidRetUid(m.uid); err != nil {
					return err
				}
			}
			up, err := dialer.Dial(family, dst.String())
			if err != nil {
				return err
			}
			defer up.Close()
			_, _ = fmt.Fprintf(c, "sidecar saw %s for %s, ", peer.Addr(), dst)
			_, err = io.Copy(c, up)
			return err
		})
	})
}

// meant sets the destination to the one that a client of a redirected connection meant.
func meant(c *net.TCPConn, level int, dst *netip.AddrPort) error {
	const originalDst = 80 // SO_ORIGINAL_DST, IP6T_SO_ORIGINAL_DST
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) {
		if level == unix.SOL_IPV6 {
			var found *unix.IPv6MTUInfo // begins with a struct sockaddr_in6
			if found, err = unix.GetsockoptIPv6MTUInfo(int(fd), level, originalDst); err == nil {
				*dst = netip.AddrPortFrom(netip.AddrFrom16(found.Addr.Addr), bits.ReverseBytes16(found.Addr.Port))
			}
			return
		}
		var found *unix.IPv6Mreq // has room for a struct sockaddr_in
		if found, err = unix.GetsockoptIPv6Mreq(int(fd), level, originalDst); err == nil {
			b := found.Multiaddr
			*dst = netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:4]))
		}
	}), err)
}

// serveDNS answers each datagram until the test ends, with a socket of that user.
func (r *rig) serveDNS(in *network.Namespace, family, address string, uid int, answer func(netip.AddrPort) string) {
	r.Helper()
	var l *net.UDPConn
	check.OK(r, in.Do(func() error {
		if _, err := unix.SetfsuidRetUid(uid); err != nil {
			return err
		}
		c, err := net.ListenPacket(family, address)
		l, _ = c.(*net.UDPConn)
		return err
	}))
	r.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			_, peer, err := l.ReadFromUDPAddrPort(make([]byte, 1))
			if err != nil {
				return
			}
			_, _ = l.WriteToUDPAddrPort([]byte(answer(peer)), peer)
		}
	}()
}

// askDNS returns the answer to a datagram of that user, or its error.
func (r *rig) askDNS(client *network.Namespace, family, dst string, uid int) string {
	answer := make([]byte, 256)
	err := client.Do(func() error {
		if _, err := unix.SetfsuidRetUid(uid); err != nil {
			return err
		}
		c, err := net.Dial(family, dst)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("?")); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
			return err
		}
		n, err := c.Read(answer)
		answer = answer[:n]
		return err
	})
	if err != nil {
		return err.Error()
	}
	return string(answer)
}
