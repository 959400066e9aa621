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
			equal(t, "destination", f.Destination.String(), tc.ethernet.String())
			equal(t, "source", f.Source.String(), parentMAC.String())
			equal(t, "operation", p.Operation, arp.OperationRequest)
			equal(t, "sender MAC", p.SenderHardwareAddr.String(), parentMAC.String())
			equal(t, "sender", p.SenderIP, netip.IPv4Unspecified())
			equal(t, "target MAC", p.TargetHardwareAddr.String(), zeroMAC.String())
			equal(t, "target", p.TargetIP, addr4)
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
			equal(t, "Ethernet destination", f.Destination.String(), tc.ethernet)
			equal(t, "source", from, netip.IPv6Unspecified())
			equal(t, "destination", to, netip.MustParseAddr("ff02::1:ff00:11"))
			ns, ok := m.(*ndp.NeighborSolicitation)
			check.Must(t, ok, "message is a %T", m)
			equal(t, "target", ns.TargetAddress, addr6)
			equal(t, "options (RFC 4861 section 4.3 forbids a source address)", len(ns.Options), 0)
		})
	}
}

// Hosts must answer a question as they answer a probe.
func TestAQuestionIsAProbeWithAMark(t *testing.T) {
	_, p := parseARP(t, check.Value(Question(parentMAC, addr4))(t))
	equal(t, "ARP question", IsQuestion(p.TargetHardwareAddr), true)
	p.TargetHardwareAddr = zeroMAC
	_, probe := parseARP(t, check.Value(Probe(parentMAC, nil, addr4))(t))
	equal(t, "ARP probe", IsQuestion(probe.TargetHardwareAddr), false)
	equal(t, "the rest of the ARP packet", fmt.Sprint(p), fmt.Sprint(probe))

	question, other := check.Value(Question(parentMAC, addr6))(t), check.Value(Probe(parentMAC, nil, addr6))(t)
	const at = 14 // behind the Ethernet header
	equal(t, "ND question", IsQuestion6(question[at:]), true)
	equal(t, "ND probe", IsQuestion6(other[at:]), false)
	copy(question[at:at+4], other[at:])
	equal(t, "the rest of the packet", string(question), string(other))
	equal(t, "version", question[at]>>4, 6)
}

func TestARPAnnouncementComesInBothForms(t *testing.T) {
	frames := check.Value(Announce(holderMAC, addr4))(t)
	equal(t, "frames", len(frames), 2)
	for i, op := range []arp.Operation{arp.OperationRequest, arp.OperationReply} {
		f, p := parseARP(t, frames[i])
		equal(t, "destination", f.Destination.String(), ethernet.Broadcast.String())
		equal(t, "operation", p.Operation, op)
		equal(t, "sender MAC", p.SenderHardwareAddr.String(), holderMAC.String())
		equal(t, "sender", p.SenderIP, addr4)
		equal(t, "target", p.TargetIP, addr4)
	}
}

func TestNeighbourAnnouncementOverrides(t *testing.T) {
	frames := check.Value(Announce(holderMAC, addr6))(t)
	equal(t, "frames", len(frames), 1)
	f, from, to, m := parseNDP(t, frames[0])
	equal(t, "Ethernet destination", f.Destination.String(), "33:33:00:00:00:01")
	equal(t, "source", from, addr6)
	equal(t, "destination", to, netip.IPv6LinkLocalAllNodes())
	na, ok := m.(*ndp.NeighborAdvertisement)
	check.Must(t, ok, "message is a %T", m)
	equal(t, "override", na.Override, true)
	equal(t, "solicited", na.Solicited, false)
	equal(t, "target", na.TargetAddress, addr6)
	lla, ok := na.Options[0].(*ndp.LinkLayerAddress)
	check.Must(t, ok && lla.Direction == ndp.Target && lla.Addr.String() == holderMAC.String(), "option %+v", na.Options[0])
}

func parseARP(t *testing.T, b []byte) (ethernet.Frame, arp.Packet) {
	t.Helper()
	var f ethernet.Frame
	var p arp.Packet
	check.OK(t, f.UnmarshalBinary(b))
	equal(t, "ethertype", f.EtherType, ethernet.EtherTypeARP)
	check.OK(t, p.UnmarshalBinary(f.Payload))
	return f, p
}

func parseNDP(t *testing.T, b []byte) (f ethernet.Frame, from, to netip.Addr, m ndp.Message) {
	t.Helper()
	check.OK(t, f.UnmarshalBinary(b))
	equal(t, "ethertype", f.EtherType, ethernet.EtherTypeIPv6)
	h, body := f.Payload[:ipv6HeaderLen], f.Payload[ipv6HeaderLen:]
	equal(t, "next header", h[6], 58)
	equal(t, "hop limit", h[7], 255)
	equal(t, "payload length", int(h[4])<<8|int(h[5]), len(body))
	from, to = netip.AddrFrom16([16]byte(h[8:24])), netip.AddrFrom16([16]byte(h[24:40]))
	m = check.Value(ndp.ParseMessage(body))(t)
	again := check.Value(ndp.MarshalMessageChecksum(m, from, to))(t)
	equal(t, "checksum", string(again[2:4]), string(body[2:4]))
	check.Value(icmp.ParseMessage(58, body))(t)
	return f, from, to, m
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	check.That(t, got == want, "%s is %v, want %v", what, got, want)
}
