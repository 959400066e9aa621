// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"reflect"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/check"
)

var (
	mac   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	addr4 = netip.MustParseAddr("192.0.2.7")
	addr6 = netip.MustParseAddr("2001:db8::7")
)

// said returns the frames in which a host probes and announces an address.
func said(t testing.TB, addr netip.Addr) (probe []byte, announcements [][]byte) {
	t.Helper()
	return check.Value(frames.Probe(mac, nil, addr))(t), check.Value(frames.Announce(mac, addr))(t)
}

func TestAProbeAsksAndAnAnnouncementUses(t *testing.T) {
	for _, addr := range []netip.Addr{addr4, addr6} {
		probe, announcements := said(t, addr)
		for i, frame := range append([][]byte{probe}, announcements...) {
			s, ok := parse(frame)
			check.That(t, ok && s.addr == addr && bytes.Equal(s.mac, mac) && s.asks == (i == 0), "%s, frame %d: %+v, %v", addr, i, s, ok)
			for n := range frame { // no length of a frame may panic
				parse(frame[:n])
			}
		}
	}
}

// An agent that asks a canary does not want its address.
func TestAQuestionToACanaryIsNoProbe(t *testing.T) {
	for _, addr := range []netip.Addr{addr4, addr6} {
		s, ok := parse(check.Value(frames.Question(mac, addr))(t))
		check.That(t, !ok, "got %+v", s)
	}
}

// RFC 5227 section 1.1: the sender of a probe is the interface that sends it. RFC 4861 section 7.1.1: a
// solicitation from :: has no source link-layer address.
func TestAMalformedProbeSaysNothing(t *testing.T) {
	const sender, kind, length = ethernetHeader + 8, etherType + 9, ethernetHeader + 4
	for what, frame := range map[string][]byte{
		"a probe for another host": func() []byte { f, _ := said(t, addr4); f[sender]++; return f }(),
		"a reply of 0.0.0.0":       func() []byte { f, _ := said(t, addr4); f[kind] = 2; return f }(),
		"a solicitation from :: with a source": func() []byte {
			f, _ := said(t, addr6)
			f = append(f[:ethernetHeader+ipv6Header+24:ethernetHeader+ipv6Header+24], append([]byte{1, 1}, mac...)...)
			f[length+1] = 32
			return f
		}(),
	} {
		s, ok := parse(frame)
		check.That(t, !ok, "%s: %+v", what, s)
	}
}

// A host that resolves an address does not use it.
func TestAQuestionOfANeighbourSaysNothing(t *testing.T) {
	probe, _ := said(t, addr6)
	const source = ethernetHeader + 8
	copy(probe[source:], netip.MustParseAddr("fe80::1").AsSlice())
	s, ok := parse(probe)
	check.That(t, !ok, "got %+v", s)
}

func TestTheFilterKeepsWhatIsRead(t *testing.T) {
	for _, addr := range []netip.Addr{addr4, addr6} {
		program := check.Value(filter())(t)
		decoded, ok := bpf.Disassemble(program)
		check.Must(t, ok, "the filter has unknown instructions")
		// The virtual machine of the library has no VLAN extension, with which the filter begins.
		vm := check.Value(bpf.NewVM(decoded[3:]))(t)
		probe, announcements := said(t, addr)
		for i, frame := range append([][]byte{probe}, announcements...) {
			n, err := vm.Run(frame)
			check.That(t, err == nil && n != 0, "%s, frame %d is dropped: %d, %v", addr, i, n, err)
		}
		other := bytes.Clone(probe)
		what, at := "a frame of IPv4", etherType+1
		if addr.Is6() {
			what, at = "a router advertisement", ethernetHeader+ipv6Header
		}
		other[at] = map[string]byte{"a frame of IPv4": 0, "a router advertisement": 134}[what]
		n, err := vm.Run(other)
		check.That(t, err == nil && n == 0, "%s is kept: %d, %v", what, n, err)
	}
}

// FuzzSpeech: a frame that is read passed the filter of the socket, has the lengths of its RFC, and
// says the same as the frame that this project sends for the statement.
func FuzzSpeech(f *testing.F) {
	program := check.Value(filter())(f)
	decoded, _ := bpf.Disassemble(program)
	vm, err := bpf.NewVM(decoded[3:]) // see TestTheFilterKeepsWhatIsRead
	check.OK(f, err)
	for _, addr := range []netip.Addr{addr4, addr6} {
		probe, announcements := said(f, addr)
		for _, frame := range append(announcements, probe) {
			f.Add(frame)
			f.Add(append(frame[:12:12], append([]byte{0x81, 0, 0, 1}, frame[12:]...)...))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, ok := parse(data)
		if !ok {
			return
		}
		n, err := vm.Run(data)
		check.That(t, err == nil && n != 0, "the filter drops % x: %v", data, err)
		check.That(t, len(s.mac) == 6 && s.addr.IsValid() && !s.addr.IsUnspecified() && s.addr.Zone() == "", "% x says %+v", data, s)
		check.That(t, hasLengths(data), "% x has not the lengths of its RFC, and says %+v", data, s)
		padded, ok := parse(append(bytes.Clone(data), make([]byte, 18)...))
		check.That(t, ok && reflect.DeepEqual(padded, s), "% x says %+v, with padding %+v", data, s, padded)
		again := speak(t, s)
		got, ok := parse(again)
		check.That(t, ok && reflect.DeepEqual(got, s), "% x says %+v, and % x says %+v", data, s, again, got)
	})
}

// hasLengths reports whether the fields of the frame that give lengths are those of RFC 826 for IPv4
// over Ethernet, or of RFC 4861 sections 4.3 and 4.4.
func hasLengths(data []byte) bool {
	if binary.BigEndian.Uint16(data[etherType:]) == 0x0806 {
		return len(data) >= ethernetHeader+28 && bytes.Equal(data[16:20], []byte{8, 0, 6, 4})
	}
	length := int(binary.BigEndian.Uint16(data[ethernetHeader+4:]))
	return length >= 24 && length%8 == 0 && len(data) >= ethernetHeader+ipv6Header+length && data[ethernetHeader+7] == 255
}

// speak returns a frame that makes the statement.
func speak(t *testing.T, s speech) []byte {
	t.Helper()
	if s.asks {
		return check.Value(frames.Probe(s.mac, nil, s.addr))(t)
	}
	return check.Value(frames.Announce(s.mac, s.addr))(t)[0]
}
