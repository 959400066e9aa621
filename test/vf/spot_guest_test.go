// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/vf"
)

// limit is the time for a frame on the segment, once all interfaces have a carrier.
const limit = 20 * time.Second

// etherType is one for experiments (IEEE 802).
const etherType = 0x88b5

// spot is an interface that sends and hears.
type spot struct {
	name string
	*network.Namespace
	iface  string
	mac    net.HardwareAddr
	socket int
}

// newSpot opens the ear of an interface.
func newSpot(t *testing.T, name string, ns *network.Namespace, iface string) *spot {
	t.Helper()
	vf.AwaitCarrier(t, ns, iface)
	s := &spot{name: name, Namespace: ns, iface: iface, mac: check.Value(ns.MAC(iface))(t)}
	index := check.Value(ns.Index(iface))(t)
	check.OK(t, ns.Do(func() (err error) {
		const protocol = etherType>>8 | etherType<<8&0xff00 // network byte order
		if s.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol); err != nil {
			return err
		}
		return errors.Join(
			unix.Bind(s.socket, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: index}),
			unix.SetsockoptTimeval(s.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 300_000}))
	}))
	t.Cleanup(func() { unix.Close(s.socket) })
	return s
}

// send sends a frame with a text.
func (s *spot) send(dst, src net.HardwareAddr, text string) error {
	frame := slices.Concat(dst, src, []byte{etherType >> 8, etherType & 0xff}, []byte(text))
	_, err := unix.Write(s.socket, append(frame, make([]byte, max(0, 60-len(frame)))...))
	return os.NewSyscallError("send "+text, err)
}

// hears reads until it hears one of the texts, and returns it. If none comes, it returns "".
func (s *spot) hears(texts ...string) string {
	frame := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(s.socket, frame, 0)
		if err != nil || n < 14 {
			return ""
		}
		text := string(bytes.TrimRight(frame[14:n], "\x00"))
		if from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING && slices.Contains(texts, text) {
			return text
		}
	}
}

// stage is all spots of a test.
type stage struct {
	spots []*spot
	made  int // texts
}

func broadcast() net.HardwareAddr { return bytes.Repeat([]byte{0xff}, 6) }

// whoHears returns the spots, except the sender, that hear a frame. Afterwards last sends a
// broadcast: a spot that hears only the broadcast has not heard the frame.
func (g *stage) whoHears(t *testing.T, from *spot, dst, src net.HardwareAddr, last *spot) string {
	t.Helper()
	g.made++
	text, end := fmt.Sprintf("frame %d", g.made), fmt.Sprintf("end %d", g.made)
	_ = from.send(dst, src, text) // ENOBUFS, if a hook drops it
	check.OK(t, last.send(broadcast(), last.mac, end))
	var who []string
	for _, s := range g.spots {
		if s != from && s.hears(text, end) == text {
			who = append(who, s.name)
		}
	}
	if len(who) == 0 {
		return "nobody"
	}
	return strings.Join(who, ", ")
}

// warmUp returns when every spot hears every other one: a card may lose its first frames.
func (g *stage) warmUp(t *testing.T) {
	t.Helper()
	for _, from := range g.spots {
		check.Eventually(t, limit, "frames of "+from.name, func() error {
			if who := g.whoHears(t, from, broadcast(), from.mac, from); strings.Count(who, ",")+2 != len(g.spots) {
				return fmt.Errorf("only %s heard", who)
			}
			return nil
		})
	}
}

// give moves a VF into a pod, where it is up.
func give(t *testing.T, h *vf.Host, v vf.VF, pod *network.Namespace) {
	t.Helper()
	link := check.Value(h.Links().LinkByName(v.Name()))(t)
	target := check.Value(os.Open(pod.Path()))(t)
	defer target.Close()
	check.OK(t, errors.Join(h.Links().LinkSetDown(link), h.Links().LinkSetNsFd(link, int(target.Fd()))))
	check.OK(t, pod.Links().LinkSetName(link, namespaces.PodInterface))
	check.OK(t, pod.SetUp(namespaces.PodInterface, true))
}

// asPod runs fn in a pod, with the capabilities of a container that may only set up the network and
// send raw frames.
func asPod(pod *network.Namespace, fn func() error) error {
	return pod.Do(func() error {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		caps := uint32(1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW)
		data := [2]unix.CapUserData{{Effective: caps, Permitted: caps}}
		if err := unix.Capset(&header, &data[0]); err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
		return fn()
	})
}

// pf is the link of the PF in the host.
func pf(t *testing.T, h *vf.Host) netlink.Link {
	t.Helper()
	return check.Value(h.Links().LinkByName(namespaces.Parent))(t)
}
