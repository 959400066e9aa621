// SPDX-License-Identifier: Apache-2.0

// Package frames builds the frames that ask for and announce addresses: ARP (RFC 826, RFC 5227) and
// neighbour discovery (RFC 4861, RFC 4862).
package frames

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
)

// zeroMAC is the target hardware address of probes and announcements (RFC 5227 sections 2.1.1 and
// 2.3).
var zeroMAC = make(net.HardwareAddr, 6)

// Probe returns the frame that asks whether a host uses addr: an ARP probe (RFC 5227 section
// 2.1.1), or a neighbour solicitation of duplicate address detection (RFC 4862 section 5.4.2). Its
// destination is the MAC dst, or all hosts if dst is nil.
func Probe(src, dst net.HardwareAddr, addr netip.Addr) ([]byte, error) {
	return ask(src, dst, addr, false)
}

// Question returns the frame that asks a host whether it hears the MAC src. The host answers it as
// it answers a probe. Fenceline does not take it for a probe, whose sender wants the address.
func Question(src net.HardwareAddr, addr netip.Addr) ([]byte, error) {
	return ask(src, nil, addr, true)
}

// The marks of a question. Hosts ignore both fields of a probe. Keep in sync with bpf/src/speech.h.
var questionMAC = net.HardwareAddr{0x46, 0x4c, 0x51, 0x3f, 0, 0}

const questionFlow = 0x464c5

// IsQuestion reports whether a probe is a question, by its target hardware address.
func IsQuestion(target net.HardwareAddr) bool { return bytes.Equal(target, questionMAC) }

// IsQuestion6 reports whether an IPv6 packet of at least 4 bytes with a probe is a question, by its flow label.
func IsQuestion6(packet []byte) bool {
	return binary.BigEndian.Uint32(packet)&0xfffff == questionFlow
}

func ask(src, dst net.HardwareAddr, addr netip.Addr, question bool) ([]byte, error) {
	if addr.Is4() {
		if dst == nil {
			dst = ethernet.Broadcast
		}
		target := arpParty{zeroMAC, addr}
		if question {
			target.mac = questionMAC
		}
		return arpFrame(arp.OperationRequest, dst, arpParty{src, netip.IPv4Unspecified()}, target)
	}
	group, err := ndp.SolicitedNodeMulticast(addr)
	if err != nil {
		return nil, fmt.Errorf("solicited-node group of %s: %w", addr, err)
	}
	if dst == nil {
		dst = MulticastMAC(group)
	}
	// The IPv6 destination is the group in a unicast frame too (RFC 6085). A solicitation from ::
	// to another destination is invalid (RFC 4861 section 7.1.1).
	ns := &ndp.NeighborSolicitation{TargetAddress: addr}
	var flow uint32
	if question {
		flow = questionFlow
	}
	return ndpFrame(src, dst, netip.IPv6Unspecified(), group, flow, ns)
}

// Announce returns the frames that announce addr at mac to all hosts: ARP announcements in
// the request form of RFC 5227 section 2.3 and in the reply form that some stacks require, or an
// unsolicited neighbour advertisement with override (RFC 4861 section 7.2.6).
func Announce(mac net.HardwareAddr, addr netip.Addr) ([][]byte, error) {
	if addr.Is4() {
		self := arpParty{mac, addr}
		request, err := arpFrame(arp.OperationRequest, ethernet.Broadcast, self, arpParty{zeroMAC, addr})
		if err != nil {
			return nil, err
		}
		reply, err := arpFrame(arp.OperationReply, ethernet.Broadcast, self, arpParty{ethernet.Broadcast, addr})
		if err != nil {
			return nil, err
		}
		return [][]byte{request, reply}, nil
	}
	na := &ndp.NeighborAdvertisement{
		Override:      true,
		TargetAddress: addr,
		Options:       []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: mac}},
	}
	group := netip.IPv6LinkLocalAllNodes()
	frame, err := ndpFrame(mac, MulticastMAC(group), addr, group, 0, na)
	if err != nil {
		return nil, err
	}
	return [][]byte{frame}, nil
}

// Report returns the report that the host with a MAC listens to the solicited-node group of an IPv6 address (MLDv2, RFC
// 3810), for switches that snoop. It comes from ::, as that of a host which has no address yet (RFC 3590).
func Report(mac net.HardwareAddr, addr netip.Addr) ([]byte, error) {
	group, err := ndp.SolicitedNodeMulticast(addr)
	if err != nil {
		return nil, fmt.Errorf("solicited-node group of %s: %w", addr, err)
	}
	const records, toExclude = 1, 4 // to exclude no source is to join
	body := append([]byte{0, 0, 0, records, toExclude, 0, 0, 0}, group.AsSlice()...)
	m := icmp.Message{Type: ipv6.ICMPTypeVersion2MulticastListenerReport, Body: &icmp.RawBody{Data: body}}
	from := netip.IPv6Unspecified()
	report, err := m.Marshal(icmp.IPv6PseudoHeader(from.AsSlice(), listeners.AsSlice()))
	if err != nil {
		return nil, fmt.Errorf("marshal the report of %s: %w", group, err)
	}
	alert := []byte{protocolICMPv6, 0, 5, 2, 0, 0, 1, 0} // hop-by-hop header with a router alert (RFC 2711)
	return ipv6Frame(mac, MulticastMAC(listeners), from, listeners, ipv6Header{next: protocolHopByHop, hops: 1}, append(alert, report...))
}

// listeners is the group to which reports are sent.
var listeners = netip.MustParseAddr("ff02::16")

// arpParty is the sender or the target of an ARP packet.
type arpParty struct {
	mac  net.HardwareAddr
	addr netip.Addr
}

func arpFrame(op arp.Operation, dst net.HardwareAddr, sender, target arpParty) ([]byte, error) {
	p, err := arp.NewPacket(op, sender.mac, sender.addr, target.mac, target.addr)
	if err != nil {
		return nil, fmt.Errorf("make ARP packet for %s: %w", target.addr, err)
	}
	b, err := p.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("marshal ARP packet for %s: %w", target.addr, err)
	}
	return etherFrame(sender.mac, dst, ethernet.EtherTypeARP, b)
}

const (
	ipv6HeaderLen    = 40
	protocolHopByHop = 0
	protocolICMPv6   = 58
	// ndHopLimit proves that no router forwarded the packet (RFC 4861 section 7.1).
	ndHopLimit = 255
)

func ndpFrame(src, dst net.HardwareAddr, from, to netip.Addr, flow uint32, m ndp.Message) ([]byte, error) {
	body, err := ndp.MarshalMessageChecksum(m, from, to)
	if err != nil {
		return nil, fmt.Errorf("marshal %s to %s: %w", m.Type(), to, err)
	}
	return ipv6Frame(src, dst, from, to, ipv6Header{flow, protocolICMPv6, ndHopLimit}, body)
}

type ipv6Header struct {
	flow       uint32
	next, hops byte
}

func ipv6Frame(src, dst net.HardwareAddr, from, to netip.Addr, h ipv6Header, body []byte) ([]byte, error) {
	b := make([]byte, ipv6HeaderLen, ipv6HeaderLen+len(body))
	binary.BigEndian.PutUint32(b, 6<<28|h.flow)
	binary.BigEndian.PutUint16(b[4:6], uint16(len(body)))
	b[6], b[7] = h.next, h.hops
	copy(b[8:24], from.AsSlice())
	copy(b[24:40], to.AsSlice())
	return etherFrame(src, dst, ethernet.EtherTypeIPv6, append(b, body...))
}

func etherFrame(src, dst net.HardwareAddr, t ethernet.EtherType, payload []byte) ([]byte, error) {
	f := ethernet.Frame{Destination: dst, Source: src, EtherType: t, Payload: payload}
	b, err := f.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("marshal Ethernet frame to %s: %w", dst, err)
	}
	return b, nil
}

// MulticastMAC returns the Ethernet address of an IPv6 group (RFC 2464 section 7).
func MulticastMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}
