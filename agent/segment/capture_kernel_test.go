// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package segment

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// frame is one captured frame with the kernel's receive time.
type frame struct {
	at   time.Time
	data []byte
}

// src is the Ethernet source.
func (f frame) src() net.HardwareAddr { return net.HardwareAddr(f.data[6:12]) }

// speaksFor tells whether the frame's network-layer sender is addr.
func (f frame) speaksFor(addr netip.Addr) bool {
	switch ethernet.EtherType(binary.BigEndian.Uint16(f.data[12:14])) {
	case ethernet.EtherTypeARP:
		var p arp.Packet
		return p.UnmarshalBinary(f.data[14:]) == nil && p.SenderIP == addr
	case ethernet.EtherTypeIPv4:
		return len(f.data) >= 34 && bytes.Equal(f.data[26:30], addr.AsSlice())
	case ethernet.EtherTypeIPv6:
		return len(f.data) >= 54 && bytes.Equal(f.data[22:38], addr.AsSlice())
	}
	return false
}

// capture records what comes out of a port of the switch from the node behind it.
type capture struct {
	mu     sync.Mutex
	frames []frame
	since  time.Time
}

// startCapture captures what the machine behind a port sends, until the test ends.
func startCapture(t *testing.T, ns *network.Namespace, port string) *capture {
	t.Helper()
	index := check.Value(ns.Index(port))(t)
	var fd int
	check.OK(t, ns.Do(func() (err error) {
		proto := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto); err != nil {
			return os.NewSyscallError("socket", err)
		}
		return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(proto), Ifindex: index}))
	}))
	check.OK(t, os.NewSyscallError("SO_TIMESTAMPNS", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)))
	check.OK(t, os.NewSyscallError("SO_RCVBUFFORCE", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)))
	check.OK(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20000}))
	c := &capture{}
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { c.read(fd, done) })
	t.Cleanup(func() {
		close(done)
		reader.Wait()
		check.OK(t, unix.Close(fd))
	})
	return c
}

func (c *capture) read(fd int, done <-chan struct{}) {
	buf, oob := make([]byte, 2048), make([]byte, 256)
	for {
		select {
		case <-done:
			return
		default:
		}
		n, oobn, _, from, err := unix.Recvmsg(fd, buf, oob, 0)
		if err != nil {
			continue // the receive timeout
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OUTGOING || n < 14 {
			continue
		}
		c.mu.Lock()
		c.frames = append(c.frames, frame{stamp(oob[:oobn]), bytes.Clone(buf[:n])})
		c.mu.Unlock()
	}
}

// stamp reads the receive time out of the control messages.
func stamp(oob []byte) time.Time {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Time{}
	}
	for _, m := range msgs {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data[:8])), int64(binary.NativeEndian.Uint64(m.Data[8:16])))
		}
	}
	return time.Time{}
}

// list returns the frames that match, of those that came since the last reset.
func (c *capture) list(match func(frame) bool) []frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []frame
	for _, f := range c.frames {
		if !f.at.Before(c.since) && match(f) {
			out = append(out, f)
		}
	}
	return out
}

// from matches the frames of mac that speak for addr.
func from(mac net.HardwareAddr, addr netip.Addr) func(frame) bool {
	return func(f frame) bool { return bytes.Equal(f.src(), mac) && f.speaksFor(addr) }
}

// reset forgets what has come up to now, also what nobody has read yet.
func (c *capture) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.frames, c.since = nil, time.Now()
}
