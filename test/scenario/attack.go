// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/ndp"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
)

// party is a host or pod on the underlay.
type party struct {
	name      string
	mac       net.HardwareAddr
	four, six netip.Addr
}

// Reasons for which the source guard drops frames, as its metric names them.
const (
	whyEther     = "ether"
	whySender    = "sender-mac"
	whyUnleased  = "unleased"
	whySlot      = "slot"
	whyRouter    = "router"
	whyDHCP      = "dhcp-server"
	whyTagged    = "tagged"
	whyBridge    = "bridge"
	whyMalformed = "malformed"
	whyFromPod   = "from-pod" // of a claim, which has a metric of its own
)

// attack is a kind of frames that a pod must not send.
type attack struct {
	kind string
	// why is the reason under which the frames are counted. pretends: they name the victim's address
	// as the pod's own, so they count as slot if the victim is a pod of the same node.
	why      string
	pretends bool
	// forged: the Ethernet source is the victim's.
	forged bool
	// frame returns one frame. It holds the mark, by which it is recognized wherever it arrives.
	frame func(own, victim party, mark []byte) []byte
}

// reason returns the reason for which a frame against that victim is dropped.
func (a attack) reason(sibling bool) string {
	if a.pretends && sibling {
		return whySlot
	}
	return a.why
}

// attacks has a kind for each reason, in the order of the table. The tests of package bpf have all kinds.
func attacks() []attack {
	return []attack{
		{"gratuitous ARP", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arpOf(arp.OperationReply, o.mac, v.four, v.four), mark)
		}},
		{"ARP with its sender pair", whySender, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arpOf(arp.OperationReply, v.mac, v.four, v.four), mark)
		}},
		{"UDP", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_IP, packet4(v.four, allHosts, datagram(9, 9, mark)))
		}},
		{"UDP with its Ethernet source", whyEther, true, true, func(_, v party, mark []byte) []byte {
			return shout(v, unix.ETH_P_IP, packet4(v.four, allHosts, datagram(9, 9, mark)))
		}},
		{"neighbour solicitation", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout6(o, solicitation(v.six, o.six, o.mac, mark))
		}},
		{"advertisement in fragments", whyMalformed, false, false, func(o, v party, mark []byte) []byte {
			whole := advertisement(o.six, v.six, o.mac, mark)
			first := []byte{unix.IPPROTO_ICMPV6, 0, 0, 1, 0, 0, 0, 7} // RFC 8200, section 4.5
			return shout6(o, packet6(o.six, allNodes, unix.IPPROTO_FRAGMENT, first, whole[40:]))
		}},
		// Frames of a router or a server go to the victim alone.
		{"router advertisement", whyRouter, false, false, func(o, v party, mark []byte) []byte {
			advertised := &ndp.RouterAdvertisement{Options: []ndp.Option{nonce(mark)}}
			return to(v, o, unix.ETH_P_IPV6, discovery(linkLocal(o.mac), v.six, advertised))
		}},
		{"DHCP offer", whyDHCP, false, false, func(o, v party, mark []byte) []byte {
			return to(v, o, unix.ETH_P_IP, packet4(o.four, v.four, datagram(67, 68, mark)))
		}},
		{"claim", whyFromPod, false, false, func(o, v party, mark []byte) []byte {
			claimed := v.four.As16()
			return shout(o, capture.TypeClaim, []byte("FLC1"), make([]byte, 12), claimed[:], make([]byte, 16), mark)
		}},
		{"gratuitous ARP, VLAN 0", whyTagged, false, false, func(o, v party, mark []byte) []byte {
			tag := []byte{0, 0, unix.ETH_P_ARP >> 8, unix.ETH_P_ARP & 0xff}
			return shout(o, unix.ETH_P_8021Q, tag, arpOf(arp.OperationReply, o.mac, v.four, v.four), mark)
		}},
		{"LLDP", whyBridge, false, false, func(o, v party, mark []byte) []byte {
			return to(v, o, unix.ETH_P_LLDP, make([]byte, 40), mark)
		}},
	}
}

// ownFrames are frames that the pod must be able to send, to all hosts.
func ownFrames(o, gateway party) []func(mark []byte) []byte {
	return []func(mark []byte) []byte{
		func(mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arpOf(arp.OperationRequest, o.mac, o.four, gateway.four), mark)
		},
		func(mark []byte) []byte {
			return shout(o, unix.ETH_P_IP, packet4(o.four, allHosts, datagram(9, 9, mark)))
		},
		func(mark []byte) []byte { return shout6(o, advertisement(o.six, o.six, o.mac, mark)) },
		func(mark []byte) []byte { return shout6(o, solicitation(o.six, gateway.six, o.mac, mark)) },
		func(mark []byte) []byte {
			return shout6(o, packet6(o.six, allNodes, unix.IPPROTO_UDP, datagram(9, 9, mark)))
		},
		func(mark []byte) []byte {
			return shout6(o, packet6(linkLocal(o.mac), allNodes, unix.IPPROTO_UDP, datagram(9, 9, mark)))
		},
	}
}

var (
	// allNodes is a group to which each host listens (RFC 4291, section 2.7.1).
	allNodes = netip.IPv6LinkLocalAllNodes()
	// allHosts is the broadcast address of the underlay.
	allHosts = netip.MustParseAddr("10.78.255.255")
)

// shout sends a body to all hosts.
func shout(own party, proto uint16, body ...[]byte) []byte {
	return to(party{mac: ethernet.Broadcast}, own, proto, body...)
}

// shout6 sends an IPv6 packet to all hosts.
func shout6(own party, packet []byte) []byte {
	return to(party{mac: frames.MulticastMAC(allNodes)}, own, unix.ETH_P_IPV6, packet)
}

// to is an Ethernet frame.
func to(receiver, sender party, proto uint16, body ...[]byte) []byte {
	return slices.Concat(receiver.mac, sender.mac, be16(proto), slices.Concat(body...))
}

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// arpOf is an ARP message of a sender, about a target whose MAC is none.
func arpOf(operation arp.Operation, mac net.HardwareAddr, sender, target netip.Addr) []byte {
	return value(value(arp.NewPacket(operation, mac, sender, make(net.HardwareAddr, 6), target)).MarshalBinary())
}

// packet4 is an IPv4 packet with UDP.
func packet4(src, dst netip.Addr, payload []byte) []byte {
	h := slices.Concat([]byte{0x45, 0}, be16(uint16(20+len(payload))), be16(7), be16(0),
		[]byte{64, unix.IPPROTO_UDP, 0, 0}, src.AsSlice(), dst.AsSlice())
	var sum uint32 // the Internet checksum (RFC 1071)
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum+sum>>16))
	return append(h, payload...)
}

// packet6 is an IPv6 packet with hop limit 255, which neighbour discovery requires.
func packet6(src, dst netip.Addr, next byte, body ...[]byte) []byte {
	payload := slices.Concat(body...)
	return slices.Concat([]byte{0x60, 0, 0, 0}, be16(uint16(len(payload))), []byte{next, 255}, src.AsSlice(), dst.AsSlice(), payload)
}

// datagram is UDP without a checksum. A host ignores it in IPv6, but a capture shows it.
func datagram(from, to uint16, payload []byte) []byte {
	return slices.Concat(be16(from), be16(to), be16(uint16(8+len(payload))), be16(0), payload)
}

// discovery is a packet of neighbour discovery (RFC 4861).
func discovery(src, dst netip.Addr, m ndp.Message) []byte {
	return packet6(src, dst, unix.IPPROTO_ICMPV6, value(ndp.MarshalMessageChecksum(m, src, dst)))
}

func advertisement(src, target netip.Addr, mac net.HardwareAddr, mark []byte) []byte {
	options := []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: mac}, nonce(mark)}
	return discovery(src, allNodes, &ndp.NeighborAdvertisement{Override: true, TargetAddress: target, Options: options})
}

func solicitation(src, target netip.Addr, mac net.HardwareAddr, mark []byte) []byte {
	options := []ndp.Option{nonce(mark), &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: mac}}
	return discovery(src, allNodes, &ndp.NeighborSolicitation{TargetAddress: target, Options: options})
}

// nonce is an option with six bytes (RFC 3971, section 5.3.2).
func nonce(mark []byte) ndp.Option { return &ndp.RawOption{Type: 14, Length: 1, Value: mark} }

// linkLocal is the address that a kernel makes of a MAC (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}
