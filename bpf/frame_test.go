// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
)

// Hand-made frames: the programs must see what a tool that means harm can send, not what a codec would make of it.

const (
	etherARP   = 0x0806
	etherIPv4  = 0x0800
	etherIPv6  = 0x86dd
	etherVLAN  = 0x8100
	etherClaim = claim.EtherType
)

var (
	broadcast = mac("ff:ff:ff:ff:ff:ff")
	parentMAC = mac("02:00:00:00:00:01")
	podMAC    = mac("02:00:00:00:01:01")
	otherMAC  = mac("02:00:00:00:01:02")
	remoteMAC = mac("02:00:00:00:09:09")
	noMAC     = make(net.HardwareAddr, 6)

	addr4   = netip.MustParseAddr("10.9.0.1")
	other4  = netip.MustParseAddr("10.9.0.2")
	far4    = netip.MustParseAddr("10.9.0.200")
	nobody4 = netip.MustParseAddr("10.9.0.250")
	none4   = netip.IPv4Unspecified()
	addr6   = netip.MustParseAddr("fd09::1")
	other6  = netip.MustParseAddr("fd09::2")
	far6    = netip.MustParseAddr("fd09::200")
	local6  = netip.MustParseAddr("fe80::1")
	none6   = netip.IPv6Unspecified()
)

func mac(s string) net.HardwareAddr {
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return m
}

func eth(dst, src net.HardwareAddr, proto uint16, payload ...[]byte) []byte {
	f := slices.Concat(dst, src, be16(proto))
	return append(f, slices.Concat(payload...)...)
}

// tagged puts an 802.1Q tag behind the MACs.
func tagged(vid uint16, frame []byte) []byte {
	return slices.Concat(frame[:12], be16(etherVLAN), be16(vid), frame[12:])
}

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// arp is the body of a packet from sha and spa for tpa; the operation is a request's.
func arp(sha net.HardwareAddr, spa, tpa netip.Addr) []byte {
	return slices.Concat(be16(1), be16(etherIPv4), []byte{6, 4}, be16(1), sha, spa.AsSlice(), noMAC, tpa.AsSlice())
}

func arpFrame(sha net.HardwareAddr, spa, tpa netip.Addr) []byte {
	return eth(broadcast, sha, etherARP, arp(sha, spa, tpa))
}

func arpProbe(sha net.HardwareAddr, addr netip.Addr) []byte { return arpFrame(sha, none4, addr) }

// arpReply is a reply of far4 to a host with this address.
func arpReply(to netip.Addr) []byte {
	f := arpFrame(remoteMAC, far4, to)
	f[21] = 2
	return f
}

func ipv4(src, dst netip.Addr) []byte {
	h := make([]byte, 20)
	h[0], h[8], h[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(h[2:], 28)
	copy(h[12:], src.AsSlice())
	copy(h[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(h[10:], checksum(h)) // a bridge may drop what has none
	return append(h, make([]byte, 8)...)
}

func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	return ^uint16(sum + sum>>16)
}

const (
	nextHop      = 0
	nextUDP      = 17
	nextRouting  = 43
	nextFragment = 44
	nextAuth     = 51
	nextICMPv6   = 58
	nextDest     = 60
)

func ipv6(src, dst netip.Addr, next byte, payload ...[]byte) []byte {
	body := slices.Concat(payload...)
	h := make([]byte, 8)
	h[0], h[6], h[7] = 0x60, next, 255
	binary.BigEndian.PutUint16(h[4:], uint16(len(body)))
	return slices.Concat(h, src.AsSlice(), dst.AsSlice(), body)
}

func udp() []byte { return make([]byte, 8) }

// extension is a hop-by-hop, routing or destination header of 8 bytes.
func extension(next byte) []byte { return []byte{next, 0, 0, 0, 0, 0, 0, 0} }

// auth is an authentication header of 12 bytes.
func auth(next byte) []byte { return append([]byte{next, 1}, make([]byte, 10)...) }

func fragment(next byte, offset uint16, more bool) []byte {
	h := make([]byte, 8)
	h[0] = next
	word := offset &^ 7
	if more {
		word |= 1
	}
	binary.BigEndian.PutUint16(h[2:], word)
	return h
}

func icmpv6(kind byte, rest ...[]byte) []byte {
	return slices.Concat([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, slices.Concat(rest...))
}

// na advertises target; with a MAC by an option, else by the Ethernet source only.
func na(target netip.Addr, by net.HardwareAddr) []byte {
	n := icmpv6(136, target.AsSlice())
	if by != nil {
		n = slices.Concat(n, []byte{2, 1}, by)
	}
	return n
}

func ns(target netip.Addr) []byte { return icmpv6(135, target.AsSlice()) }

func echo() []byte { return icmpv6(128, make([]byte, 32)) }

func naFrame(by net.HardwareAddr, target netip.Addr) []byte {
	return eth(broadcast, by, etherIPv6, ipv6(target, far6, nextICMPv6, na(target, by)))
}

func dadFrame(by net.HardwareAddr, target netip.Addr) []byte {
	return eth(broadcast, by, etherIPv6, ipv6(none6, far6, nextICMPv6, ns(target)))
}

// routed is an untagged IPv6 frame as it comes over a router.
func routed(frame []byte) []byte {
	const hopLimit = 14 + 7
	f := slices.Clone(frame)
	f[hopLimit] = 254
	return f
}

const (
	network      = uint64(0x1122334455667788)
	otherNetwork = uint64(0x8877665544332211)
)

var (
	keyA = ClaimKey{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	keyB = ClaimKey{15: 1}
	keyC = ClaimKey{7: 7}
)

// claimFrame is a claim as agent/segment/claim makes it, so that both codecs are held against each other.
func claimFrame(t testing.TB, f claim.Frame, dst, src net.HardwareAddr, key ClaimKey) []byte {
	t.Helper()
	return check.Value(f.Ethernet(dst, src, claim.Key(key)))(t)
}

// heldToken is the token of the lease that the rigs install.
const heldToken = 100

// remoteClaim comes from another node, signed with the current key, and asks the rig's holder for its ack.
func remoteClaim(t testing.TB, addr netip.Addr, token uint64) []byte {
	f := claim.Frame{Flags: claim.Asks(heldToken), Network: network, Addr: addr, Token: token}
	return claimFrame(t, f, broadcast, remoteMAC, keyA)
}

func mapped(addr netip.Addr) []byte {
	b := addr.As16()
	return b[:]
}
