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
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

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
