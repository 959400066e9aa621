// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

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
	whyEther      = "ether"
	whySender     = "sender-mac"
	whyUnleased   = "unleased"
	whySlot       = "slot"
	whyRouter     = "router"
	whyDHCP       = "dhcp-server"
	whyTagged     = "tagged"
	whyBridge     = "bridge"
	whyMalformed  = "malformed"
	whyFromPod    = "from-pod" // of a claim, which has a metric of its own
	protocolLLDP  = unix.ETH_P_LLDP
	protocolQinQ  = unix.ETH_P_8021AD
	protocolClaim = capture.TypeClaim
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

// attacks are all kinds, in the order of the table.
func attacks() []attack {
	var all []attack
	for _, some := range [][]attack{arpAttacks(), neighbourAttacks(), packetAttacks(), roleAttacks(), tagAttacks()} {
		all = append(all, some...)
	}
	return all
}

// shout sends a body to all hosts.
func shout(own party, proto uint16, body ...[]byte) []byte {
	return ethernet(broadcast, own.mac, proto, body...)
}

// shout6 sends an IPv6 packet to all hosts.
func shout6(own party, src netip.Addr, next byte, body ...[]byte) []byte {
	return ethernet(allNodesMAC, own.mac, unix.ETH_P_IPV6, packet6(src, allNodes, next, body...))
}

func arpAttacks() []attack {
	return []attack{
		{"gratuitous ARP request", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpRequest, o.mac, v.four, noMAC, v.four), mark)
		}},
		{"gratuitous ARP reply", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpReply, o.mac, v.four, broadcast, v.four), mark)
		}},
		{"ARP probe", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpRequest, o.mac, netip.IPv4Unspecified(), noMAC, v.four), mark)
		}},
		{"ARP question in its name", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpRequest, o.mac, v.four, noMAC, o.four), mark)
		}},
		{"ARP answer in its name", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpReply, o.mac, v.four, noMAC, allHosts), mark)
		}},
		{"ARP with its sender pair", whySender, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpReply, v.mac, v.four, broadcast, v.four), mark)
		}},
		{"ARP with its sender MAC", whySender, false, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpReply, v.mac, o.four, broadcast, o.four), mark)
		}},
		{"ARP in an LLC frame", whyBridge, false, false, func(o, v party, mark []byte) []byte {
			const length, snap = 8 + 28 + 6, "\xaa\xaa\x03\x00\x00\x00\x08\x06"
			return shout(o, length, []byte(snap), arp(arpReply, o.mac, v.four, broadcast, v.four), mark)
		}},
	}
}

func neighbourAttacks() []attack {
	return []attack{
		{"advertisement", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout6(o, o.six, unix.IPPROTO_ICMPV6, advertisement(v.six, o.mac, mark))
		}},
		{"advertisement, its MAC", whySender, false, false, func(o, v party, mark []byte) []byte {
			return shout6(o, o.six, unix.IPPROTO_ICMPV6, advertisement(o.six, v.mac, mark))
		}},
		{"advertisement, its source", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout6(o, v.six, unix.IPPROTO_ICMPV6, advertisement(v.six, o.mac, mark))
		}},
		{"advertisement behind a header", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout6(o, o.six, unix.IPPROTO_DSTOPTS, extension(unix.IPPROTO_ICMPV6), advertisement(v.six, o.mac, mark))
		}},
		{"advertisement in fragments", whyMalformed, false, false, func(o, v party, mark []byte) []byte {
			return shout6(o, o.six, unix.IPPROTO_FRAGMENT, fragment6(unix.IPPROTO_ICMPV6, 0, true), advertisement(v.six, o.mac, mark))
		}},
		{"solicitation, its source", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout6(o, v.six, unix.IPPROTO_ICMPV6, solicitation(o.six, mark), option(optionSource, o.mac))
		}},
		{"solicitation, its MAC", whySender, false, false, func(o, v party, mark []byte) []byte {
			return shout6(o, o.six, unix.IPPROTO_ICMPV6, solicitation(v.six, mark), option(optionSource, v.mac))
		}},
		{"duplicate address detection", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout6(o, netip.IPv6Unspecified(), unix.IPPROTO_ICMPV6, solicitation(v.six, mark))
		}},
	}
}

// advertisement is a neighbour advertisement with the Override flag (RFC 4861).
func advertisement(target netip.Addr, mac net.HardwareAddr, mark []byte) []byte {
	const override = 0x20
	m := message6(neighbourAdvertisement, target.AsSlice(), option(optionTarget, mac), option(optionNonce, mark))
	m[4] = override
	return m
}

func solicitation(target netip.Addr, mark []byte) []byte {
	return message6(neighbourSolicitation, target.AsSlice(), option(optionNonce, mark))
}

func packetAttacks() []attack {
	const more, later = 0x2000, 8
	return []attack{
		{"UDP", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_IP, packet4(v.four, allHosts, unix.IPPROTO_UDP, 0, datagram(9, 9, mark)))
		}},
		{"UDP, first fragment", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_IP, packet4(v.four, allHosts, unix.IPPROTO_UDP, more, datagram(9, 9, mark)))
		}},
		{"UDP, later fragment", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout(o, unix.ETH_P_IP, packet4(v.four, allHosts, unix.IPPROTO_UDP, later, mark))
		}},
		{"UDP by IPv6", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout6(o, v.six, unix.IPPROTO_UDP, datagram(9, 9, mark))
		}},
		{"UDP by IPv6, later fragment", whyUnleased, true, false, func(o, v party, mark []byte) []byte {
			return shout6(o, v.six, unix.IPPROTO_FRAGMENT, fragment6(unix.IPPROTO_UDP, later, false), mark)
		}},
		{"its Ethernet source", whyEther, false, true, func(o, v party, mark []byte) []byte {
			return ethernet(broadcast, v.mac, unix.ETH_P_IP, packet4(o.four, allHosts, unix.IPPROTO_UDP, 0, datagram(9, 9, mark)))
		}},
		{"UDP with its Ethernet source", whyEther, true, true, func(o, v party, mark []byte) []byte {
			return ethernet(broadcast, v.mac, unix.ETH_P_IP, packet4(v.four, allHosts, unix.IPPROTO_UDP, 0, datagram(9, 9, mark)))
		}},
	}
}

// roleAttacks are frames of a router or a server, which a pod is not. They go to the victim alone.
func roleAttacks() []attack {
	four := func(o, v party, proto byte, body ...[]byte) []byte {
		return ethernet(v.mac, o.mac, unix.ETH_P_IP, packet4(o.four, v.four, proto, 0, body...))
	}
	six := func(o, v party, next byte, body ...[]byte) []byte {
		return ethernet(v.mac, o.mac, unix.ETH_P_IPV6, packet6(linkLocal(o.mac), v.six, next, body...))
	}
	return []attack{
		{"router advertisement", whyRouter, false, false, func(o, v party, mark []byte) []byte {
			return six(o, v, unix.IPPROTO_ICMPV6, message6(routerAdvertisement, make([]byte, 8), option(optionNonce, mark)))
		}},
		{"the same behind a header", whyRouter, false, false, func(o, v party, mark []byte) []byte {
			advertised := message6(routerAdvertisement, make([]byte, 8), option(optionNonce, mark))
			return six(o, v, unix.IPPROTO_HOPOPTS, extension(unix.IPPROTO_ICMPV6), advertised)
		}},
		{"redirect by ICMPv6", whyRouter, false, false, func(o, v party, mark []byte) []byte {
			return six(o, v, unix.IPPROTO_ICMPV6, message6(redirect6, o.six.AsSlice(), o.six.AsSlice(), option(optionNonce, mark)))
		}},
		{"redirect by ICMP", whyRouter, false, false, func(o, v party, mark []byte) []byte {
			return four(o, v, unix.IPPROTO_ICMP, []byte{icmpRedirect, 1, 0, 0}, o.four.AsSlice(), mark)
		}},
		{"DHCP offer", whyDHCP, false, false, func(o, v party, mark []byte) []byte {
			return four(o, v, unix.IPPROTO_UDP, datagram(67, 68, mark))
		}},
		{"DHCPv6 advertisement", whyDHCP, false, false, func(o, v party, mark []byte) []byte {
			return six(o, v, unix.IPPROTO_UDP, datagram(547, 546, mark))
		}},
		{"claim", whyFromPod, false, false, func(o, v party, mark []byte) []byte {
			claimed := v.four.As16()
			return shout(o, protocolClaim, []byte("FLC1"), make([]byte, 12), claimed[:], make([]byte, 16), mark)
		}},
	}
}

func tagAttacks() []attack {
	announced := func(o party, mark []byte) []byte {
		return shout(o, unix.ETH_P_ARP, arp(arpRequest, o.mac, o.four, noMAC, o.four), mark)
	}
	to := func(v party, frame []byte) []byte { return append(append([]byte{}, v.mac...), frame[6:]...) }
	return []attack{
		{"own frame, VLAN 100", whyTagged, false, false, func(o, v party, mark []byte) []byte {
			return to(v, tagged(unix.ETH_P_8021Q, 100, announced(o, mark)))
		}},
		{"own frame, VLAN 0", whyTagged, false, false, func(o, v party, mark []byte) []byte {
			return to(v, tagged(unix.ETH_P_8021Q, 0, announced(o, mark)))
		}},
		{"own frame, QinQ", whyTagged, false, false, func(o, v party, mark []byte) []byte {
			return to(v, tagged(protocolQinQ, 7, tagged(unix.ETH_P_8021Q, 100, announced(o, mark))))
		}},
		{"gratuitous ARP, VLAN 0", whyTagged, false, false, func(o, v party, mark []byte) []byte {
			return tagged(unix.ETH_P_8021Q, 0, shout(o, unix.ETH_P_ARP, arp(arpReply, o.mac, v.four, broadcast, v.four), mark))
		}},
		{"LLDP", whyBridge, false, false, func(o, v party, mark []byte) []byte {
			return ethernet(v.mac, o.mac, protocolLLDP, make([]byte, 40), mark)
		}},
		{"STP", whyBridge, false, false, func(o, v party, mark []byte) []byte {
			const length, llc = 3 + 35 + 6, "\x42\x42\x03"
			return ethernet(v.mac, o.mac, length, []byte(llc), make([]byte, 35), mark)
		}},
	}
}

// ownFrames are frames that the pod must be able to send, to all hosts.
func ownFrames(o, gateway party) []func(mark []byte) []byte {
	const later = 8
	return []func(mark []byte) []byte{
		func(mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpRequest, o.mac, o.four, noMAC, o.four), mark)
		},
		func(mark []byte) []byte {
			return shout(o, unix.ETH_P_ARP, arp(arpRequest, o.mac, o.four, noMAC, gateway.four), mark)
		},
		func(mark []byte) []byte {
			return shout(o, unix.ETH_P_IP, packet4(o.four, allHosts, unix.IPPROTO_UDP, 0, datagram(9, 9, mark)))
		},
		func(mark []byte) []byte {
			return shout(o, unix.ETH_P_IP, packet4(o.four, allHosts, unix.IPPROTO_UDP, later, mark))
		},
		func(mark []byte) []byte {
			return shout6(o, o.six, unix.IPPROTO_ICMPV6, advertisement(o.six, o.mac, mark))
		},
		func(mark []byte) []byte {
			return shout6(o, o.six, unix.IPPROTO_ICMPV6, solicitation(gateway.six, mark), option(optionSource, o.mac))
		},
		func(mark []byte) []byte { return shout6(o, o.six, unix.IPPROTO_UDP, datagram(9, 9, mark)) },
		func(mark []byte) []byte { return shout6(o, linkLocal(o.mac), unix.IPPROTO_UDP, datagram(9, 9, mark)) },
		func(mark []byte) []byte {
			return shout6(o, o.six, unix.IPPROTO_DSTOPTS, extension(unix.IPPROTO_UDP), datagram(9, 9, mark))
		},
	}
}
