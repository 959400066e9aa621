// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"bytes"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/frames"
)

const (
	arpEthernet = 1
	// arpIEEE802 is accepted by Linux too (arp_process of net/ipv4/arp.c).
	arpIEEE802 = 6
	// ndHopLimit proves that no router forwarded the packet (RFC 4861 section 7.1).
	ndHopLimit = 255
)

// speech is the statement of a host about an address.
type speech struct {
	addr netip.Addr
	mac  net.HardwareAddr
	// asks: the host probes the address as well. Otherwise it uses the address.
	asks bool
}

// parse reads a statement about an address out of a frame. It returns false for a frame that hosts
// ignore, and for one with a VLAN tag, which belongs to another segment.
func parse(data []byte) (speech, bool) {
	var f ethernet.Frame
	if f.UnmarshalBinary(data) != nil || f.VLAN != nil || f.ServiceVLAN != nil {
		return speech{}, false
	}
	switch f.EtherType {
	case ethernet.EtherTypeARP:
		return parseARP(f)
	case ethernet.EtherTypeIPv6:
		return parseND(f)
	}
	return speech{}, false
}

// parseARP reads an ARP packet for IPv4 over Ethernet (RFC 826). The sender of a probe is the host that
// sends it (RFC 5227 section 1.1).
func parseARP(f ethernet.Frame) (speech, bool) {
	var p arp.Packet
	if p.UnmarshalBinary(f.Payload) != nil || !isIPv4OverEthernet(p) {
		return speech{}, false
	}
	if p.SenderIP.IsUnspecified() {
		probe := p.Operation == arp.OperationRequest && bytes.Equal(p.SenderHardwareAddr, f.Source) &&
			!p.TargetIP.IsUnspecified() && !frames.IsQuestion(p.TargetHardwareAddr)
		return speech{p.TargetIP, p.SenderHardwareAddr, true}, probe
	}
	return speech{p.SenderIP, p.SenderHardwareAddr, false}, true
}

func isIPv4OverEthernet(p arp.Packet) bool {
	return (p.HardwareType == arpEthernet || p.HardwareType == arpIEEE802) && p.HardwareAddrLength == 6 &&
		p.ProtocolType == uint16(ethernet.EtherTypeIPv4) && p.IPLength == 4
}

// parseND reads a neighbour solicitation or advertisement that is valid by RFC 4861 section 7.1. It
// does not compare the checksum.
func parseND(f ethernet.Frame) (speech, bool) {
	h, err := ipv6.ParseHeader(f.Payload)
	if err != nil || h.Version != 6 || h.NextHeader != unix.IPPROTO_ICMPV6 || h.HopLimit != ndHopLimit || len(f.Payload) < ipv6Header+h.PayloadLen {
		return speech{}, false
	}
	message := f.Payload[ipv6Header : ipv6Header+h.PayloadLen] // without the padding of the frame
	if len(message) < 2 || message[1] != 0 {                   // code
		return speech{}, false
	}
	m, err := ndp.ParseMessage(message)
	if err != nil {
		return speech{}, false
	}
	var s speech
	switch m := m.(type) {
	case *ndp.NeighborAdvertisement:
		s = speech{m.TargetAddress, f.Source, false}
		for _, o := range m.Options {
			if l, ok := o.(*ndp.LinkLayerAddress); ok && l.Direction == ndp.Target {
				s.mac = l.Addr
			}
		}
	case *ndp.NeighborSolicitation:
		from, _ := netip.AddrFromSlice(h.Src)
		hasSource := slices.ContainsFunc(m.Options, func(o ndp.Option) bool {
			l, ok := o.(*ndp.LinkLayerAddress)
			return ok && l.Direction == ndp.Source
		})
		if !from.IsUnspecified() || hasSource || frames.IsQuestion6(f.Payload) {
			return speech{}, false
		}
		s = speech{m.TargetAddress, f.Source, true}
	default:
		return speech{}, false
	}
	return s, !s.addr.IsMulticast() && !s.addr.IsUnspecified()
}
