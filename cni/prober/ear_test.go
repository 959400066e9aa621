// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"bytes"
	"net"
	"net/netip"
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
	probe, err := frames.Probe(mac, nil, addr)
	check.OK(t, err)
	if announcements, err = frames.Announce(mac, addr); err != nil {
		t.Fatal(err)
	}
	return probe, announcements
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
		question := check.Value(frames.Question(mac, addr))(t)
		s, ok := parse(question)
		check.That(t, !ok, "got %+v", s)
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
		if n, err := vm.Run(other); err != nil || n != 0 {
			t.Errorf("%s is kept: %d, %v", what, n, err)
		}
	}
}
