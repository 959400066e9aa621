// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
	lan "github.com/fenceline/fenceline/test/network"
)

// netns is a machine or a pod.
type netns struct {
	*lan.Namespace
	t    testing.TB
	path string
}

func newNetNS(t testing.TB, name string) *netns {
	t.Helper()
	made := lan.New(t, name)
	ns := &netns{made, t, made.Path()}
	ns.do(func() error {
		// Neighbour discovery of the kernel's own would only be in the way.
		for _, scope := range []string{"all", "default"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/disable_ipv6", []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	})
	return ns
}

// remove ends the namespace, unless a process is in it.
func (ns *netns) remove() {
	ns.t.Helper()
	check.OK(ns.t, ns.Delete())
}

// do runs fn in the namespace that has the name now.
func (ns *netns) do(fn func() error) {
	ns.t.Helper()
	check.OK(ns.t, attach.InNetNS(ns.path, fn))
}

// in returns the result of fn in the namespace that has the name now.
func in[T any](ns *netns, fn func() (T, error)) (v T) {
	ns.t.Helper()
	ns.do(func() (err error) { v, err = fn(); return err })
	return v
}

func (ns *netns) index(name string) int {
	ns.t.Helper()
	return check.Value(ns.Index(name))(ns.t)
}

func (ns *netns) mac(name string) net.HardwareAddr {
	ns.t.Helper()
	return check.Value(ns.MAC(name))(ns.t)
}

func (ns *netns) addAddr(name string, a netip.Addr) {
	ns.t.Helper()
	check.OK(ns.t, ns.AddAddr(name, netip.PrefixFrom(a, 24)))
}

func (ns *netns) up(name string) {
	ns.t.Helper()
	check.OK(ns.t, ns.SetUp(name, true))
}

func (ns *netns) deleteLink(name string) {
	ns.t.Helper()
	check.OK(ns.t, ns.DeleteLink(name))
}

func (ns *netns) device(name string) netlink.Link {
	ns.t.Helper()
	return check.Value(ns.Links().LinkByName(name))(ns.t)
}

func (ns *netns) setMAC(name string, mac net.HardwareAddr) {
	ns.t.Helper()
	check.OK(ns.t, ns.Links().LinkSetHardwareAddr(ns.device(name), mac))
}

func (ns *netns) move(name string, to *netns) {
	ns.t.Helper()
	f := check.Value(os.Open(to.path))(ns.t)
	defer f.Close()
	check.OK(ns.t, ns.Links().LinkSetNsFd(ns.device(name), int(f.Fd())))
}

// pod makes a namespace with a macvlan eth0 on parent, as the reference plugin does: the link is there and down.
func (ns *netns) pod(parent, name string) *netns {
	ns.t.Helper()
	pod := newNetNS(ns.t, name)
	check.OK(ns.t, ns.AddMacvlan(parent, nil, pod.Namespace, "eth0"))
	return pod
}

func portOf(pod string) string { return "ve-" + pod }

// bridged makes a namespace with a veth eth0, whose other end is beside parent on a bridge.
func (ns *netns) bridged(parent, name string) *netns {
	ns.t.Helper()
	const bridge = "br0"
	if _, err := ns.Index(bridge); err != nil {
		check.OK(ns.t, ns.AddBridge(bridge))
		check.OK(ns.t, ns.EndRecord())
		check.OK(ns.t, ns.Links().LinkSetMaster(ns.device(parent), ns.device(bridge)))
	}
	pod := newNetNS(ns.t, name)
	check.OK(ns.t, ns.AddPair(portOf(name), pod.Namespace, "eth0"))
	check.OK(ns.t, ns.Links().LinkSetMaster(ns.device(portOf(name)), ns.device(bridge)))
	ns.up(portOf(name))
	return pod
}

// wire is a switch, to which machines are plugged.
type wire struct {
	t  testing.TB
	ns *netns
}

func newWire(t testing.TB) *wire {
	t.Helper()
	w := &wire{t: t, ns: newNetNS(t, "wire")}
	check.OK(t, w.ns.AddBridge(lan.Bridge))
	check.OK(t, w.ns.EndRecord()) // these tests send malformed frames
	return w
}

// plug makes a namespace with the device p0 on the wire.
func (w *wire) plug(name string) *netns {
	w.t.Helper()
	ns := newNetNS(w.t, name)
	lan.LAN{Switch: w.ns.Namespace}.Plug(w.t, ns.Namespace, "p0", nil, name)
	return ns
}

const allProtocols = unix.ETH_P_ALL

// socket is a raw socket on one device of one namespace.
type socket struct {
	t testing.TB
	*packet.Conn
}

func (ns *netns) socket(device string, protocol int) *socket {
	ns.t.Helper()
	s := &socket{t: ns.t}
	ns.do(func() error {
		ifi, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		s.Conn, err = packet.Listen(ifi, packet.Raw, protocol, nil)
		return err
	})
	ns.t.Cleanup(func() { s.Close() })
	return s
}

func (s *socket) option(level, name, value int) {
	s.t.Helper()
	raw := check.Value(s.SyscallConn())(s.t)
	var failed error
	check.OK(s.t, raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), level, name, value) }))
	check.OK(s.t, failed)
}

// send ignores ENOBUFS, which is how a socket learns that a program dropped its frame.
func (s *socket) send(frame []byte) {
	s.t.Helper()
	_, err := s.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
	check.Must(s.t, err == nil || errors.Is(err, unix.ENOBUFS), "%v", err)
}

// until returns the frames received up to the first one that ends the wait, which is not among them; ok is false
// when it does not come within a minute.
func (s *socket) until(end func(frame []byte) bool) (frames [][]byte, ok bool) {
	s.t.Helper()
	check.OK(s.t, s.SetReadDeadline(time.Now().Add(time.Minute)))
	for {
		buf := make([]byte, 2048)
		n, _, err := s.ReadFrom(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return frames, false
		}
		check.OK(s.t, err)
		if end(buf[:n]) {
			return frames, true
		}
		frames = append(frames, buf[:n])
	}
}

// expect waits for a frame and returns it.
func (s *socket) expect(what string, match func(frame []byte) bool) []byte {
	s.t.Helper()
	var found []byte
	_, ok := s.until(func(f []byte) bool { found = f; return match(f) })
	check.Must(s.t, ok, "no %s within a minute", what)
	return found
}

// hears reports whether a frame that matches comes before the marker, which must come.
func (s *socket) hears(match, marker func(frame []byte) bool) bool {
	s.t.Helper()
	frames, ok := s.until(marker)
	check.Must(s.t, ok, "the marker did not come")
	return slices.ContainsFunc(frames, match)
}

// chatter sends a frame again and again. stop ends that, and returns how often it was sent.
func (s *socket) chatter(frame []byte) (stop func() int) {
	end, ended := make(chan struct{}), make(chan int)
	go func() {
		for sent := 0; ; sent++ {
			select {
			case <-end:
				ended <- sent
				return
			default:
				s.send(frame)
			}
		}
	}()
	return func() int {
		close(end)
		return <-ended
	}
}

// arpFrom matches ARP packets whose sender is the address.
func arpFrom(addr netip.Addr) func([]byte) bool {
	return func(f []byte) bool {
		return len(f) >= 42 && bytes.Equal(f[12:14], be16(etherARP)) && bytes.Equal(f[28:32], addr.AsSlice())
	}
}

// ipFrom matches IPv4 packets from the address.
func ipFrom(addr netip.Addr) func([]byte) bool {
	return func(f []byte) bool {
		return len(f) >= 34 && bytes.Equal(f[12:14], be16(etherIPv4)) && bytes.Equal(f[26:30], addr.AsSlice())
	}
}

func protocol(proto uint16) func([]byte) bool {
	return func(f []byte) bool { return len(f) >= 14 && bytes.Equal(f[12:14], be16(proto)) }
}
