// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/icmp"

	"github.com/fenceline/fenceline/test/check"
)

var (
	parentMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	holderMAC = net.HardwareAddr{2, 0, 0, 0, 0, 11}

	addr4 = netip.MustParseAddr("192.0.2.11")
	addr6 = netip.MustParseAddr("2001:db8::11")
)

func TestARPProbeIsThatOfRFC5227(t *testing.T) {
	for _, tc := range []struct {
		name     string
		dst      net.HardwareAddr
		ethernet net.HardwareAddr
	}{
		{"to all", nil, ethernet.Broadcast},
		{"to the previous holder", holderMAC, holderMAC},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, p := parseARP(t, check.Value(Probe(parentMAC, tc.dst, addr4))(t))
			check.Equal(t, f.Destination.String(), tc.ethernet.String(), "destination")
			check.Equal(t, f.Source.String(), parentMAC.String(), "source")
			check.Equal(t, p.Operation, arp.OperationRequest, "operation")
			check.Equal(t, p.SenderHardwareAddr.String(), parentMAC.String(), "sender MAC")
			check.Equal(t, p.SenderIP, netip.IPv4Unspecified(), "sender")
			check.Equal(t, p.TargetHardwareAddr.String(), zeroMAC.String(), "target MAC")
			check.Equal(t, p.TargetIP, addr4, "target")
		})
	}
}

func TestNeighbourProbeIsThatOfRFC4862(t *testing.T) {
	for _, tc := range []struct {
		name     string
		dst      net.HardwareAddr
		ethernet string
	}{
		{"to the solicited-node group", nil, "33:33:ff:00:00:11"},
		{"in a unicast frame", holderMAC, holderMAC.String()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, from, to, m := parseNDP(t, check.Value(Probe(parentMAC, tc.dst, addr6))(t))
			check.Equal(t, f.Destination.String(), tc.ethernet, "Ethernet destination")
			check.Equal(t, from, netip.IPv6Unspecified(), "source")
			check.Equal(t, to, netip.MustParseAddr("ff02::1:ff00:11"), "destination")
			ns, ok := m.(*ndp.NeighborSolicitation)
			check.Must(t, ok, "message is a %T", m)
			check.Equal(t, ns.TargetAddress, addr6, "target")
			check.Equal(t, len(ns.Options), 0, "options (RFC 4861 section 4.3 forbids a source address)")
		})
	}
}

// Hosts must answer a question as they answer a probe.
func TestAQuestionIsAProbeWithAMark(t *testing.T) {
	_, p := parseARP(t, check.Value(Question(parentMAC, addr4))(t))
	check.Equal(t, IsQuestion(p.TargetHardwareAddr), true, "ARP question")
	p.TargetHardwareAddr = zeroMAC
	_, probe := parseARP(t, check.Value(Probe(parentMAC, nil, addr4))(t))
	check.Equal(t, IsQuestion(probe.TargetHardwareAddr), false, "ARP probe")
	check.Equal(t, fmt.Sprint(p), fmt.Sprint(probe), "the rest of the ARP packet")

	question, other := check.Value(Question(parentMAC, addr6))(t), check.Value(Probe(parentMAC, nil, addr6))(t)
	const at = 14 // behind the Ethernet header
	check.Equal(t, IsQuestion6(question[at:]), true, "ND question")
	check.Equal(t, IsQuestion6(other[at:]), false, "ND probe")
	copy(question[at:at+4], other[at:])
	check.Equal(t, string(question), string(other), "the rest of the packet")
	check.Equal(t, question[at]>>4, 6, "version")
}

func TestARPAnnouncementComesInBothForms(t *testing.T) {
	frames := check.Value(Announce(holderMAC, addr4))(t)
	check.Equal(t, len(frames), 2, "frames")
	for i, op := range []arp.Operation{arp.OperationRequest, arp.OperationReply} {
		f, p := parseARP(t, frames[i])
		check.Equal(t, f.Destination.String(), ethernet.Broadcast.String(), "destination")
		check.Equal(t, p.Operation, op, "operation")
		check.Equal(t, p.SenderHardwareAddr.String(), holderMAC.String(), "sender MAC")
		check.Equal(t, p.SenderIP, addr4, "sender")
		check.Equal(t, p.TargetIP, addr4, "target")
	}
}

func TestNeighbourAnnouncementOverrides(t *testing.T) {
	frames := check.Value(Announce(holderMAC, addr6))(t)
	check.Equal(t, len(frames), 1, "frames")
	f, from, to, m := parseNDP(t, frames[0])
	check.Equal(t, f.Destination.String(), "33:33:00:00:00:01", "Ethernet destination")
	check.Equal(t, from, addr6, "source")
	check.Equal(t, to, netip.IPv6LinkLocalAllNodes(), "destination")
	na, ok := m.(*ndp.NeighborAdvertisement)
	check.Must(t, ok, "message is a %T", m)
	check.Equal(t, na.Override, true, "override")
	check.Equal(t, na.Solicited, false, "solicited")
	check.Equal(t, na.TargetAddress, addr6, "target")
	lla, ok := na.Options[0].(*ndp.LinkLayerAddress)
	check.Must(t, ok && lla.Direction == ndp.Target && lla.Addr.String() == holderMAC.String(), "option %+v", na.Options[0])
}

func parseARP(t *testing.T, b []byte) (ethernet.Frame, arp.Packet) {
	t.Helper()
	var f ethernet.Frame
	var p arp.Packet
	check.OK(t, f.UnmarshalBinary(b))
	check.Equal(t, f.EtherType, ethernet.EtherTypeARP, "ethertype")
	check.OK(t, p.UnmarshalBinary(f.Payload))
	return f, p
}

func parseNDP(t *testing.T, b []byte) (f ethernet.Frame, from, to netip.Addr, m ndp.Message) {
	t.Helper()
	check.OK(t, f.UnmarshalBinary(b))
	check.Equal(t, f.EtherType, ethernet.EtherTypeIPv6, "ethertype")
	h, body := f.Payload[:ipv6HeaderLen], f.Payload[ipv6HeaderLen:]
	check.Equal(t, h[6], 58, "next header")
	check.Equal(t, h[7], 255, "hop limit")
	check.Equal(t, int(h[4])<<8|int(h[5]), len(body), "payload length")
	from, to = netip.AddrFrom16([16]byte(h[8:24])), netip.AddrFrom16([16]byte(h[24:40]))
	m = check.Value(ndp.ParseMessage(body))(t)
	again := check.Value(ndp.MarshalMessageChecksum(m, from, to))(t)
	check.Equal(t, string(again[2:4]), string(body[2:4]), "checksum")
	check.Value(icmp.ParseMessage(58, body))(t)
	return f, from, to, m
}
