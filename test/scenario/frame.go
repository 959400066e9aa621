// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/net/icmp"
	"golang.org/x/sys/unix"
)

// Frames are made by hand, because an attacker can send frames that no stack makes. ICMPv6 directly
// behind the IPv6 header has a correct checksum, so hosts accept it. UDP has no checksum, and ICMPv6
// behind other headers has a wrong one. Hosts ignore such packets, but a capture shows them.

var (
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	noMAC     = make(net.HardwareAddr, 6)
	// allNodesMAC and allNodes are a group to which each host listens (RFC 4291, section 2.7.1).
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	allNodes    = netip.MustParseAddr("ff02::1")
	// allHosts is the broadcast address of the underlay.
	allHosts = netip.MustParseAddr("10.78.255.255")
)

// Operations of ARP (RFC 826).
const (
	arpRequest = 1
	arpReply   = 2
)

// Types of ICMP and ICMPv6 (RFC 792, RFC 4861).
const (
	icmpRedirect           = 5
	routerAdvertisement    = 134
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
	redirect6              = 137
)

// Options of neighbour discovery (RFC 4861, RFC 3971).
const (
	optionSource = 1
	optionTarget = 2
	optionNonce  = 14
)

func ethernet(to, from net.HardwareAddr, proto uint16, body ...[]byte) []byte {
	return slices.Concat(to, from, be16(proto), slices.Concat(body...))
}

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// tagged inserts a VLAN tag of a type after the MACs.
func tagged(proto, vid uint16, frame []byte) []byte {
	return slices.Concat(frame[:12], be16(proto), be16(vid), frame[12:])
}

// arp is an ARP message with MAC and address of sender and target.
func arp(operation uint16, sha net.HardwareAddr, spa netip.Addr, tha net.HardwareAddr, tpa netip.Addr) []byte {
	return slices.Concat(be16(unix.ARPHRD_ETHER), be16(unix.ETH_P_IP), []byte{6, 4}, be16(operation),
		sha, spa.AsSlice(), tha, tpa.AsSlice())
}

// packet4 is an IPv4 packet. fragment holds the flags and the offset.
func packet4(src, dst netip.Addr, proto byte, fragment uint16, body ...[]byte) []byte {
	payload := slices.Concat(body...)
	h := slices.Concat([]byte{0x45, 0}, be16(uint16(20+len(payload))), be16(7), be16(fragment),
		[]byte{64, proto, 0, 0}, src.AsSlice(), dst.AsSlice())
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	if len(b)%2 == 1 {
		b = append(slices.Clone(b), 0)
	}
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// packet6 is an IPv6 packet with hop limit 255, which neighbour discovery requires.
func packet6(src, dst netip.Addr, next byte, body ...[]byte) []byte {
	payload := slices.Concat(body...)
	if next == unix.IPPROTO_ICMPV6 {
		pseudo := icmp.IPv6PseudoHeader(src.AsSlice(), dst.AsSlice())
		binary.BigEndian.PutUint32(pseudo[32:], uint32(len(payload)))
		binary.BigEndian.PutUint16(payload[2:], checksum(append(pseudo, payload...)))
	}
	return slices.Concat([]byte{0x60, 0, 0, 0}, be16(uint16(len(payload))), []byte{next, 255},
		src.AsSlice(), dst.AsSlice(), payload)
}

func datagram(from, to uint16, payload []byte) []byte {
	return slices.Concat(be16(from), be16(to), be16(uint16(8+len(payload))), be16(0), payload)
}

// message6 is an ICMPv6 message with four reserved bytes.
func message6(kind byte, body ...[]byte) []byte {
	return slices.Concat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, slices.Concat(body...))
}

// option is a neighbour discovery option with a value of six bytes.
func option(kind byte, value []byte) []byte { return append([]byte{kind, 1}, value...) }

// extension is a header of hop-by-hop or destination options.
func extension(next byte) []byte { return []byte{next, 0, 1, 4, 0, 0, 0, 0} }

// fragment6 is the header of a fragment (RFC 8200, section 4.5); offset is in units of eight bytes.
func fragment6(next byte, offset uint16, more bool) []byte {
	word := offset << 3
	if more {
		word |= 1
	}
	return slices.Concat([]byte{next, 0}, be16(word), []byte{0, 0, 0, 7})
}

// linkLocal is the address that a kernel makes of a MAC (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}
