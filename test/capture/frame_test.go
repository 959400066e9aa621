// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/hex"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

// Addresses in the frames below.
var (
	macA = net.HardwareAddr{2, 0, 0, 0, 0, 0xa}
	macB = net.HardwareAddr{2, 0, 0, 0, 0, 0xb}
)

const (
	broadcast = "ffffffffffff"
	sourceA   = "02000000000a"
	arp       = "0806" + "0001" + "0800" + "0604"
	ipv6      = "86dd" + "60000000" + "0020" + "3a" + "ff"
	fe80      = "fe80000000000000000000000000000a"
	fd00      = "fd000000000000000000000000000001"
	nobody    = "00000000000000000000000000000000"
)

func TestDecodeSaysWhoSpeaksForWhichAddress(t *testing.T) {
	for _, tc := range []struct {
		name   string
		frame  string
		kind   string
		speaks []string
		target string
	}{
		{"an ARP request speaks for its sender", broadcast + sourceA + arp + "0001" + sourceA + "0a4d0001" + "000000000000" + "0a4d0002", "ARP request", []string{"10.77.0.1"}, "10.77.0.2"},
		{"an ARP probe speaks for nobody", broadcast + sourceA + arp + "0001" + sourceA + "00000000" + "000000000000" + "0a4d0002", "ARP probe", nil, "10.77.0.2"},
		{"a tagged ARP reply is read behind its tag", broadcast + sourceA + "8100" + "0007" + arp + "0002" + sourceA + "0a4d0001" + sourceA + "0a4d0001", "ARP reply", []string{"10.77.0.1"}, "10.77.0.1"},
		{"an IPv4 packet speaks for its source", broadcast + sourceA + "0800" + "4500001400000000" + "4006" + "0000" + "0a4d0001" + "0a4d0002", "IPv4 protocol 6", []string{"10.77.0.1"}, ""},
		{"a neighbour advertisement speaks for source and target", broadcast + sourceA + ipv6 + fe80 + fd00 + "8800000020000000" + fd00, "neighbour advertisement", []string{"fe80::a", "fd00::1"}, "fd00::1"},
		{"duplicate address detection speaks for nobody", broadcast + sourceA + ipv6 + nobody + fd00 + "8700000000000000" + fd00, "neighbour solicitation", nil, "fd00::1"},
		{"a claim is about an address and speaks for none", broadcast + sourceA + "88b5" + "464c4331" + "00000000" + "0000000000000001" + "00000000000000000000ffff0a4d0001" + "0000000000000002" + "0000000000000000", "claim", nil, "10.77.0.1"},
		{"an ack is told from a claim", broadcast + sourceA + "88b5" + "464c4332" + "00000001" + "0000000000000001" + "00000000000000000000ffff0a4d0001" + "0000000000000002" + "0000000000000000", "ack", nil, "10.77.0.1"},
		{"a cut ARP message says so", broadcast + sourceA + arp, "truncated ARP", nil, ""},
		{"a cut header says so", "ffff", "truncated", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := check.Value(hex.DecodeString(tc.frame))(t)
			f := Decode(data)
			var speaks []string
			for _, a := range f.Speaks {
				speaks = append(speaks, a.String())
			}
			check.That(t, f.Kind == tc.kind && slices.Equal(speaks, tc.speaks), "kind %q speaks for %v, want %q %v", f.Kind, speaks, tc.kind, tc.speaks)
			check.Equal(t, strings.TrimPrefix(f.Target.String(), "invalid IP"), tc.target, "about")
		})
	}
}

func TestTheJudgeFindsTwoSpeakers(t *testing.T) {
	addr, other := netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")
	start := time.Unix(100, 0)
	frame := func(ms int, mac net.HardwareAddr, speaks netip.Addr) Frame {
		return Frame{Time: start.Add(time.Duration(ms) * time.Millisecond), Source: mac, Speaks: []netip.Addr{speaks}}
	}
	frames := []Frame{frame(0, macA, addr), frame(1, macB, other), frame(2, macB, addr), frame(3, macA, addr)}
	got, want := Speakers(frames, addr), []string{macA.String(), macB.String()}
	check.That(t, slices.Equal(got, want), "speakers %v, want %v", got, want)
	if got := Flips(frames, addr); got != 2 {
		t.Errorf("%d flips, want 2", got)
	}
	if got := len(SpokenFor(From(After(frames, start), macA), addr)); got != 1 {
		t.Errorf("%d frames of the old MAC after the start, want 1", got)
	}
	frames[0].Destination, frames[1].Destination, frames[2].Destination = macB, net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	if got := ToAll(frames); len(got) != 2 || got[0].Time != frames[1].Time {
		t.Errorf("to all hosts: %v, want the broadcast and the multicast", got)
	}
}
