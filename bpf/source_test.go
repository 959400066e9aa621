// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/test/check"
)

var (
	ownLocal6 = netip.MustParseAddr("fe80::ff:fe00:101")
	router4   = netip.MustParseAddr("224.0.0.18")
	vip4      = netip.MustParseAddr("10.9.0.60")
	vip6      = netip.MustParseAddr("fd09::60")
	vrrpMAC   = mac("00:00:5e:00:01:01")
	bridgeMAC = mac("01:80:c2:00:00:00")
)

// guarded are the sources of the rig's pod: its own MAC and link-local address.
func guarded(mode SourceMode) Sources {
	return Sources{Mode: mode, MAC: podMAC, Prefixes: []netip.Prefix{netip.PrefixFrom(ownLocal6, 128)}}
}

func newGuardedBench(t testing.TB, s Sources) *bench {
	t.Helper()
	b := newBench(t, setup{sources: s}, addr4, addr6)
	b.bind(other4, 2)
	b.bind(other6, 2)
	return b
}

func l4(src, dst netip.Addr, proto byte, payload ...byte) []byte {
	p := ipv4(src, dst)[:20]
	p[9] = proto
	binary.BigEndian.PutUint16(p[2:], uint16(20+len(payload)))
	return append(rechecked(p), payload...)
}

func ports(from, to uint16) []byte { return slices.Concat(be16(from), be16(to), be16(8), be16(0)) }

func fromPod4(proto byte, payload ...byte) []byte {
	return eth(remoteMAC, podMAC, etherIPv4, l4(addr4, far4, proto, payload...))
}

func fromPod6(src netip.Addr, next byte, payload ...[]byte) []byte {
	return eth(remoteMAC, podMAC, etherIPv6, ipv6(src, far6, next, payload...))
}

// toGroup4 and toGroup6 are packets of the pod to a group.
func toGroup4(group string, proto byte, payload ...byte) []byte {
	to := netip.MustParseAddr(group)
	a := to.As4()
	return eth(net.HardwareAddr{1, 0, 0x5e, a[1] & 127, a[2], a[3]}, podMAC, etherIPv4, l4(addr4, to, proto, payload...))
}

func toGroup6(group string, next byte, payload ...[]byte) []byte {
	to := netip.MustParseAddr(group)
	a := to.As16()
	return eth(net.HardwareAddr{0x33, 0x33, a[12], a[13], a[14], a[15]}, podMAC, etherIPv6, ipv6(ownLocal6, to, next, payload...))
}

// option is an option of ND with a MAC.
func option(kind byte, by net.HardwareAddr) []byte { return slices.Concat([]byte{kind, 1}, by) }

func nonce() []byte { return []byte{14, 1, 1, 2, 3, 4, 5, 6} }

func rs(options ...[]byte) []byte { return icmpv6(133, options...) }

// fragmented4 makes an IPv4 frame a fragment of an offset in bytes.
func fragmented4(frame []byte, offset uint16, more bool) []byte {
	f := slices.Clone(frame)
	word := offset / 8
	if more {
		word |= 0x2000
	}
	binary.BigEndian.PutUint16(f[14+6:], word)
	rechecked(f[14:34])
	return f
}

// rechecked writes the checksum of an IPv4 header.
func rechecked(header []byte) []byte {
	binary.BigEndian.PutUint16(header[10:], 0)
	binary.BigEndian.PutUint16(header[10:], checksum(header))
	return header
}

// withSource replaces the Ethernet source.
func withSource(by net.HardwareAddr, frame []byte) []byte {
	return slices.Concat(frame[:6], by, frame[12:])
}

func to(dst net.HardwareAddr, frame []byte) []byte { return slices.Concat(dst, frame[6:]) }

// tag puts a tag of any type behind the MACs.
func tag(proto, vid uint16, frame []byte) []byte {
	return slices.Concat(frame[:12], be16(proto), be16(vid), frame[12:])
}

// honest are frames that a guarded pod must be able to send.
func honest() map[string][]byte {
	options4 := ipv4(addr4, far4)
	options4[0] = 0x46
	return map[string][]byte{
		"IPv4":                             udpFrom(addr4),
		"IPv4 with options":                eth(remoteMAC, podMAC, etherIPv4, options4, make([]byte, 4)),
		"IPv4 later fragment":              fragmented4(udpFrom(addr4), 64, false),
		"IPv4 of another protocol":         fromPod4(132, 1, 2, 3, 4),
		"ICMP echo":                        fromPod4(1, 8, 0, 0, 0),
		"DHCP to a server":                 fromPod4(17, ports(68, 67)...),
		"DHCP relay":                       fromPod4(17, ports(67, 67)...),
		"IGMPv3 report":                    eth(broadcast, podMAC, etherIPv4, l4(addr4, far4, 2, 0x22, 0, 0, 0)),
		"IGMPv2 report for a group":        toGroup4("224.0.0.5", 2, 0x16, 0, 0, 0),
		"IGMPv2 leave":                     toGroup4("224.0.0.2", 2, 0x17, 0, 0, 0),
		"MLDv1 report for a group":         toGroup6("ff02::5", nextHop, extension(nextICMPv6), icmpv6(131, make([]byte, 16))),
		"router solicitation":              toGroup6("ff02::2", nextICMPv6, rs()),
		"a group of more than the segment": toGroup4("239.1.2.3", 17, ports(1, 520)...),
		"IGMPv2 report of nobody":          eth(broadcast, podMAC, etherIPv4, l4(none4, far4, 2, 0x16, 0, 0, 0)),
		"ARP":                              arpFrame(podMAC, addr4, far4),
		"ARP announcement":                 arpFrame(podMAC, addr4, addr4),
		"ARP probe":                        arpProbe(podMAC, addr4),
		"IPv6":                             udpFrom(addr6),
		"IPv6 from link-local":             udpFrom(ownLocal6),
		"IPv6 echo":                        fromPod6(addr6, nextICMPv6, echo()),
		"DHCPv6 to a server":               fromPod6(ownLocal6, nextUDP, ports(546, 547)),
		"first fragment":                   fromPod6(addr6, nextFragment, fragment(nextUDP, 0, true), ports(1, 2)),
		"later fragment":                   fromPod6(addr6, nextFragment, fragment(nextUDP, 64, false), udp()),
		"behind headers":                   fromPod6(addr6, nextHop, extension(nextDest), extension(nextUDP), ports(1, 2)),
		"NS":                               fromPod6(addr6, nextICMPv6, ns(far6), option(1, podMAC)),
		"NS from link-local":               fromPod6(ownLocal6, nextICMPv6, ns(far6), option(1, podMAC)),
		"NA":                               naFrame(podMAC, addr6),
		"NA for link-local":                fromPod6(ownLocal6, nextICMPv6, na(ownLocal6, podMAC)),
		"NA without option":                fromPod6(addr6, nextICMPv6, na(addr6, nil)),
		"DAD":                              dadFrame(podMAC, addr6),
		"DAD with nonce":                   fromPod6(none6, nextICMPv6, ns(addr6), nonce()),
		"DAD for link-local":               dadFrame(podMAC, ownLocal6),
		"RS":                               fromPod6(ownLocal6, nextICMPv6, rs(option(1, podMAC))),
		"RS of nobody":                     fromPod6(none6, nextICMPv6, rs()),
		"MLDv2 report":                     fromPod6(ownLocal6, nextHop, extension(nextICMPv6), icmpv6(143)),
		"MLDv2 report of nobody":           fromPod6(none6, nextHop, extension(nextICMPv6), icmpv6(143)),
		"MLDv1 done":                       fromPod6(ownLocal6, nextHop, extension(nextICMPv6), icmpv6(132)),
		"RARP":                             eth(broadcast, podMAC, 0x8035, make([]byte, 28)),
		"PTP":                              eth(mac("01:1b:19:00:00:00"), podMAC, 0x88f7, make([]byte, 40)),
	}
}

// offence is a frame that the source guard drops, and why.
type offence struct {
	frame []byte
	why   Result
}

// soft are frames with a wrong source, which mode Observe lets pass.
func soft() map[string]offence {
	return map[string]offence{
		"another MAC":                    {withSource(otherMAC, udpFrom(addr4)), ResultDropEther},
		"the gateway's MAC, no IP":       {eth(broadcast, remoteMAC, 0x9000, []byte{1}), ResultDropEther},
		"IPv4 of a remote pod":           {udpFrom(far4), ResultDropUnleased},
		"IPv4 fragment of a remote pod":  {fragmented4(udpFrom(far4), 64, false), ResultDropUnleased},
		"IPv4 of nobody":                 {udpFrom(none4), ResultDropUnspecified},
		"IPv4 fragment of nobody":        {fragmented4(udpFrom(none4), 64, false), ResultDropUnspecified},
		"DHCP discovery":                 {eth(broadcast, podMAC, etherIPv4, l4(none4, far4, 17, ports(68, 67)...)), ResultDropUnspecified},
		"ARP for a remote pod":           {arpFrame(podMAC, far4, addr4), ResultDropUnleased},
		"ARP probe for a remote pod":     {arpProbe(podMAC, far4), ResultDropUnleased},
		"ARP about nobody":               {arpFrame(podMAC, none4, none4), ResultDropUnspecified},
		"ARP with another sender MAC":    {withSource(podMAC, arpFrame(otherMAC, addr4, far4)), ResultDropSenderMAC},
		"ARP probe with another MAC":     {withSource(podMAC, arpProbe(otherMAC, addr4)), ResultDropSenderMAC},
		"IPv6 of a remote pod":           {udpFrom(far6), ResultDropUnleased},
		"IPv6 fragment of a remote pod":  {fromPod6(far6, nextFragment, fragment(nextUDP, 64, false), udp()), ResultDropUnleased},
		"IPv6 behind headers":            {fromPod6(far6, nextDest, extension(nextRouting), extension(nextUDP), ports(1, 2)), ResultDropUnleased},
		"IPv6 of nobody":                 {udpFrom(none6), ResultDropUnspecified},
		"echo of nobody":                 {fromPod6(none6, nextICMPv6, echo()), ResultDropUnspecified},
		"link-local of another":          {udpFrom(local6), ResultDropLinkLocal},
		"NA for a remote pod":            {fromPod6(addr6, nextICMPv6, na(far6, podMAC)), ResultDropUnleased},
		"NA for a link-local of another": {fromPod6(ownLocal6, nextICMPv6, na(local6, podMAC)), ResultDropLinkLocal},
		"NA behind a header":             {fromPod6(addr6, nextDest, extension(nextICMPv6), na(far6, podMAC)), ResultDropUnleased},
		"NA with another MAC":            {fromPod6(addr6, nextICMPv6, na(addr6, otherMAC)), ResultDropSenderMAC},
		"NA with another MAC second":     {fromPod6(addr6, nextICMPv6, na(addr6, podMAC), option(2, otherMAC)), ResultDropSenderMAC},
		"NA with a source option":        {fromPod6(addr6, nextICMPv6, na(addr6, podMAC), option(1, otherMAC)), ResultDropSenderMAC},
		"NA of nobody":                   {fromPod6(none6, nextICMPv6, na(addr6, podMAC)), ResultDropUnspecified},
		"NS with another MAC":            {fromPod6(addr6, nextICMPv6, ns(far6), option(1, otherMAC)), ResultDropSenderMAC},
		"RS with another MAC":            {fromPod6(ownLocal6, nextICMPv6, rs(option(1, otherMAC))), ResultDropSenderMAC},
		"DAD for a remote pod":           {dadFrame(podMAC, far6), ResultDropUnleased},
		"DAD for another link-local":     {dadFrame(podMAC, local6), ResultDropLinkLocal},
	}
}

// hard are frames that no pod may send in any mode but Off.
func hard() map[string]offence {
	return map[string]offence{
		"IPv4 of a sibling":        {udpFrom(other4), ResultDropSlot},
		"ARP for a sibling":        {arpFrame(podMAC, other4, far4), ResultDropSlot},
		"NA for a sibling":         {fromPod6(addr6, nextICMPv6, na(other6, podMAC)), ResultDropSlot},
		"a sibling's, another MAC": {withSource(otherMAC, udpFrom(other4)), ResultDropSlot},

		"router advertisement":         {fromPod6(ownLocal6, nextICMPv6, icmpv6(134, make([]byte, 8))), ResultDropRouter},
		"router advertisement, hidden": {fromPod6(ownLocal6, nextDest, extension(nextICMPv6), icmpv6(134, make([]byte, 8))), ResultDropRouter},
		"router advertisement, cut":    {fromPod6(ownLocal6, nextFragment, fragment(nextICMPv6, 0, true), icmpv6(134)), ResultDropRouter},
		"redirect":                     {fromPod6(ownLocal6, nextICMPv6, icmpv6(137, make([]byte, 32))), ResultDropRouter},
		"MLD query":                    {fromPod6(ownLocal6, nextHop, extension(nextICMPv6), icmpv6(130, make([]byte, 16))), ResultDropRouter},
		"ICMP redirect":                {fromPod4(1, 5, 1, 0, 0), ResultDropRouter},
		"ICMP redirect with options":   {optioned(fromPod4(1, 5, 1, 0, 0)), ResultDropRouter},
		"ICMP redirect, cut":           {fragmented4(fromPod4(1, 5, 1, 0, 0), 0, true), ResultDropRouter},
		"ICMP router advertisement":    {fromPod4(1, 9, 0, 0, 0), ResultDropRouter},
		"IGMP query":                   {fromPod4(2, 0x11, 0, 0, 0), ResultDropRouter},
		"VRRP":                         {eth(broadcast, podMAC, etherIPv4, l4(addr4, router4, 112, make([]byte, 8)...)), ResultDropRouter},
		"DVMRP":                        {toGroup4("224.0.0.4", 2, 0x13, 3, 0, 0), ResultDropRouter},
		"PIM of version 1":             {toGroup4("224.0.0.2", 2, 0x14, 0, 0, 0), ResultDropRouter},
		"PIM":                          {toGroup4("224.0.0.13", 103, 0x20, 0, 0, 0), ResultDropRouter},
		"PIM to one host":              {fromPod4(103, 0x20, 0, 0, 0), ResultDropRouter},
		"PIM by IPv6":                  {toGroup6("ff02::d", 103, make([]byte, 8)), ResultDropRouter},
		"OSPF":                         {toGroup4("224.0.0.5", 89, 2, 1, 0, 44), ResultDropRouter},
		"OSPF of designated routers":   {toGroup4("224.0.0.6", 89, 2, 1, 0, 44), ResultDropRouter},
		"OSPF to one host":             {fromPod4(89, 2, 1, 0, 44), ResultDropRouter},
		"OSPF by IPv6, hidden":         {toGroup6("ff02::5", nextDest, extension(89), make([]byte, 8)), ResultDropRouter},
		"EIGRP":                        {toGroup4("224.0.0.10", 88, 2, 5, 0, 0), ResultDropRouter},
		"EIGRP by IPv6":                {toGroup6("ff02::a", 88, make([]byte, 8)), ResultDropRouter},
		"RIP":                          {toGroup4("224.0.0.9", 17, ports(520, 520)...), ResultDropRouter},
		"RIP, a later fragment":        {fragmented4(toGroup4("224.0.0.9", 17, ports(520, 520)...), 64, false), ResultDropRouter},
		"RIP by IPv6":                  {toGroup6("ff02::9", nextUDP, ports(521, 521)), ResultDropRouter},
		"HSRP":                         {toGroup4("224.0.0.2", 17, ports(1985, 1985)...), ResultDropRouter},
		"HSRP of version 2":            {toGroup4("224.0.0.102", 17, ports(1985, 1985)...), ResultDropRouter},
		"HSRP by IPv6":                 {toGroup6("ff02::66", nextUDP, ports(2029, 2029)), ResultDropRouter},
		"GLBP":                         {toGroup4("224.0.0.102", 17, ports(3222, 3222)...), ResultDropRouter},
		"VRRP by IPv6":                 {fromPod6(ownLocal6, 112, make([]byte, 8)), ResultDropRouter},
		"DHCP offer":                   {fromPod4(17, ports(67, 68)...), ResultDropDHCPServer},
		"DHCP offer of another port":   {fromPod4(17, ports(1067, 68)...), ResultDropDHCPServer},
		"DHCPv6 advertisement":         {fromPod6(ownLocal6, nextUDP, ports(547, 546)), ResultDropDHCPServer},
		"DHCPv6 behind a header":       {fromPod6(ownLocal6, nextDest, extension(nextUDP), ports(547, 546)), ResultDropDHCPServer},
		"VLAN 100":                     {tagged(100, udpFrom(addr4)), ResultDropTagged},
		"VLAN 0":                       {tagged(0, udpFrom(addr4)), ResultDropTagged},
		"VLAN 0 twice":                 {tagged(0, tagged(0, udpFrom(addr4))), ResultDropTagged},
		"QinQ":                         {tag(0x88a8, 7, tagged(100, udpFrom(addr4))), ResultDropTagged},
		"QinQ of 0x9100":               {tag(0x9100, 7, tagged(100, udpFrom(addr4))), ResultDropTagged},
		"three tags":                   {tagged(1, tagged(2, tagged(3, udpFrom(addr4)))), ResultDropTagged},
		"STP":                          {eth(bridgeMAC, podMAC, 38, make([]byte, 46)), ResultDropBridge},
		"LLDP":                         {eth(mac("01:80:c2:00:00:0e"), podMAC, 0x88cc, make([]byte, 46)), ResultDropBridge},
		"LLDP by broadcast":            {eth(broadcast, podMAC, 0x88cc, make([]byte, 46)), ResultDropBridge},
		"LACP":                         {eth(mac("01:80:c2:00:00:02"), podMAC, 0x8809, make([]byte, 46)), ResultDropBridge},
		"802.1X":                       {eth(mac("01:80:c2:00:00:03"), podMAC, 0x888e, make([]byte, 46)), ResultDropBridge},
		"MVRP":                         {eth(mac("01:80:c2:00:00:21"), podMAC, 0x88f5, make([]byte, 46)), ResultDropBridge},
		"IPv4 to a bridge":             {to(bridgeMAC, udpFrom(addr4)), ResultDropBridge},
		"CDP":                          {eth(mac("01:00:0c:cc:cc:cc"), podMAC, 60, make([]byte, 60)), ResultDropBridge},
		"ARP in LLC and SNAP":          {eth(broadcast, podMAC, 36, []byte{0xaa, 0xaa, 3, 0, 0, 0, 8, 6}, arp(podMAC, far4, addr4)), ResultDropBridge},

		"IPv4 cut in UDP":     {fromPod4(17, 0, 67), ResultDropMalformed},
		"ARP cut":             {arpFrame(podMAC, addr4, far4)[:40], ResultDropMalformed},
		"ND options cut":      {fromPod6(addr6, nextICMPv6, na(addr6, podMAC), []byte{2, 1, 2, 0}), ResultDropMalformed},
		"ND option of size 0": {fromPod6(addr6, nextICMPv6, ns(far6), []byte{14, 0, 0, 0, 0, 0, 0, 0}), ResultDropMalformed},
		"many ND options":     {fromPod6(addr6, nextICMPv6, ns(far6), slices.Repeat(nonce(), 8), option(1, otherMAC)), ResultDropMalformed},
		"NA in a fragment":    {fromPod6(addr6, nextFragment, fragment(nextICMPv6, 0, false), na(addr6, podMAC)), ResultDropMalformed},
		"mapped source":       {udpFromMapped(addr4), ResultDropMalformed},
	}
}

// optioned inserts four bytes of options behind the IPv4 header.
func optioned(frame []byte) []byte {
	f := slices.Concat(frame[:34], []byte{1, 1, 1, 0}, frame[34:])
	f[14] = 0x46
	return f
}

func TestSourceGuardLetsAPodBeItself(t *testing.T) {
	for _, mode := range []SourceMode{SourcesObserve, SourcesEnforce} {
		b := newGuardedBench(t, guarded(mode))
		for name, frame := range honest() {
			t.Run(fmt.Sprintf("%s in mode %d", name, mode), func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, frame, pass) })
		}
	}
}

func TestSourceGuardDropsEachOffenceUnderItsReason(t *testing.T) {
	b := newGuardedBench(t, guarded(SourcesEnforce))
	all := soft()
	maps.Copy(all, hard())
	for name, o := range all {
		t.Run(name, func(t *testing.T) {
			b.t = t
			before := b.offences(Offence{Slot: 1, Result: o.why})
			b.expect(WhereGuardEgress, o.frame, drop, o.why)
			equal(t, "frames against the slot", b.offences(Offence{Slot: 1, Result: o.why})-before, 1)
		})
	}
}

// The link-local groups to which a pod may send: the table of docs/pools.md.
func TestSourceGuardKnowsEveryLinkLocalGroup(t *testing.T) {
	b := newGuardedBench(t, guarded(SourcesEnforce))
	hosts := map[string]bool{
		"224.0.0.1": true, "224.0.0.22": true, "224.0.0.107": true, "224.0.0.251": true, "224.0.0.252": true,
		"ff02::1": true, "ff02::c": true, "ff02::16": true, "ff02::6b": true, "ff02::fb": true, "ff02::1:2": true, "ff02::1:3": true,
	}
	judge := func(group string, frame []byte) {
		t.Helper()
		verdict, _ := b.run(WhereGuardEgress, frame)
		check.Equal(t, verdict == pass, hosts[group], "UDP to %s passes:", group)
	}
	for i := range 256 {
		group := fmt.Sprintf("224.0.0.%d", i)
		judge(group, toGroup4(group, 17, ports(40000, 5353)...))
	}
	for i := range 512 {
		for _, form := range []string{"ff02::%x", "ff02::1:%x", "ff02::2:%x", "ff02:1::%x"} {
			group := fmt.Sprintf(form, i)
			judge(group, toGroup6(group, nextUDP, ports(40000, 5353)))
		}
	}
	for group, passes := range map[string]bool{
		"224.0.1.129": true, "ff02::1:ff00:1": true, "ff02::1:ffff:ffff": true, "ff02::1:fe00:1": false, "ff12::5": true, "ff05::5": true,
	} {
		hosts[group] = passes
		if netip.MustParseAddr(group).Is4() {
			judge(group, toGroup4(group, 17, ports(40000, 320)...))
			continue
		}
		judge(group, toGroup6(group, nextUDP, ports(40000, 320)))
	}
}

func TestSourceGuardThatObservesCountsWhatItWouldDrop(t *testing.T) {
	b := newGuardedBench(t, guarded(SourcesObserve))
	for name, o := range soft() {
		t.Run(name, func(t *testing.T) {
			b.t = t
			of := Offence{Slot: 1, Result: o.why, Observed: true}
			before := b.offences(of)
			b.expect(WhereGuardEgress, o.frame, pass, ResultObserved)
			equal(t, "frames against the slot", b.offences(of)-before, 1)
		})
	}
	for name, o := range hard() {
		t.Run(name, func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, o.frame, drop, o.why) })
	}
	t.Run("and drops a fenced address", func(t *testing.T) {
		b.t = t
		b.fence(addr4)
		b.expect(WhereGuardEgress, withSource(otherMAC, udpFrom(addr4)), drop, ResultDropFenced)
	})
}

func TestSourceGuardThatIsOffDropsNoneOfThem(t *testing.T) {
	b := newGuardedBench(t, Sources{})
	for name, o := range soft() {
		t.Run(name, func(t *testing.T) { b.t = t; b.expect(WhereGuardEgress, o.frame, pass) })
	}
	equal(t, "offences", len(b.allOffences()), 0)
}

func TestSourceGuardAllowsWhatThePoolAllows(t *testing.T) {
	ra := fromPod6(ownLocal6, nextICMPv6, icmpv6(134, make([]byte, 8)))
	advert := func(id byte) []byte { return []byte{0x31, id, 255, 1, 0, 100, 0, 0} }
	vrrp := Sources{Allow: AllowVRRP, MACs: []net.HardwareAddr{{0, 0, 0x5e, 0, 1, 51}, {0, 0, 0x5e, 0, 2, 51}}}
	for name, tc := range map[string]struct {
		allow Sources
		frame []byte
		why   Result
	}{
		"a virtual address":            {Sources{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.60/32")}}, arpFrame(podMAC, vip4, vip4), ResultDropUnleased},
		"a virtual IPv6 address":       {Sources{Prefixes: []netip.Prefix{netip.MustParsePrefix("fd09::60/128")}}, fromPod6(vip6, nextICMPv6, na(vip6, podMAC)), ResultDropUnleased},
		"every IPv4 address":           {Sources{Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, udpFrom(far4), ResultDropUnleased},
		"a subnet":                     {Sources{Prefixes: []netip.Prefix{netip.MustParsePrefix("fd09::/64")}}, udpFrom(far6), ResultDropUnleased},
		"a virtual MAC":                {Sources{MACs: []net.HardwareAddr{vrrpMAC}}, withSource(vrrpMAC, udpFrom(addr4)), ResultDropEther},
		"a virtual MAC in ARP":         {Sources{MACs: []net.HardwareAddr{vrrpMAC}}, arpFrame(vrrpMAC, addr4, addr4), ResultDropEther},
		"a router":                     {Sources{Allow: AllowRouter}, ra, ResultDropRouter},
		"VRRP":                         {vrrp, toGroup4("224.0.0.18", 112, advert(51)...), ResultDropRouter},
		"VRRP by IPv6":                 {vrrp, fromPod6(ownLocal6, 112, advert(51)), ResultDropRouter},
		"a DHCP server":                {Sources{Allow: AllowDHCPServer}, fromPod4(17, ports(67, 68)...), ResultDropDHCPServer},
		"tags":                         {Sources{Allow: AllowTagged}, tagged(7, udpFrom(addr4)), ResultDropTagged},
		"a bridge":                     {Sources{Allow: AllowBridge}, eth(bridgeMAC, podMAC, 38, make([]byte, 46)), ResultDropBridge},
		"a DHCP server without a name": {Sources{Allow: AllowDHCPServer, Prefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32")}}, eth(broadcast, podMAC, etherIPv4, l4(addr4, far4, 17, ports(67, 68)...)), ResultDropDHCPServer},
	} {
		t.Run(name, func(t *testing.T) {
			b := newGuardedBench(t, guarded(SourcesEnforce))
			b.expect(WhereGuardEgress, tc.frame, drop, tc.why)
			s := guarded(SourcesEnforce)
			s.Prefixes, s.MACs, s.Allow = append(s.Prefixes, tc.allow.Prefixes...), tc.allow.MACs, tc.allow.Allow
			check.OK(t, b.Sources.Set(1, s))
			b.expect(WhereGuardEgress, tc.frame, pass)
			equal(t, "read back", b.Sources.Of(1).Equal(s), true)
			b.expect(WhereGuardEgress, arpFrame(podMAC, other4, far4), drop, ResultDropSlot) // never a sibling's
			if s.Allow == AllowVRRP {
				b.expect(WhereGuardEgress, ra, drop, ResultDropRouter)
				b.expect(WhereGuardEgress, toGroup4("224.0.0.5", 89), drop, ResultDropRouter)
				b.expect(WhereGuardEgress, toGroup4("224.0.0.18", 112, advert(1)...), drop, ResultDropRouter) // of another router
				b.expect(WhereGuardEgress, fromPod6(ownLocal6, 112, advert(1)), drop, ResultDropRouter)
			}
			check.OK(t, b.Sources.Set(1, guarded(SourcesEnforce)))
			b.expect(WhereGuardEgress, tc.frame, drop, tc.why)
		})
	}
}

// The kernel has IPv4 addresses as IPv4-mapped ones, which are IPv6 prefixes of 96 bits.
func TestAnIPv6PrefixAllowsNoIPv4Address(t *testing.T) {
	b := newGuardedBench(t, Sources{})
	for _, prefix := range []string{"::/0", "::/80", "::fffe:0:0/95"} {
		s := Sources{Mode: SourcesEnforce, MAC: podMAC, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}
		check.OK(t, b.Sources.Set(1, s))
		b.expect(WhereGuardEgress, udpFrom(far4), drop, ResultDropUnleased)
		b.expect(WhereGuardEgress, arpFrame(podMAC, far4, far4), drop, ResultDropUnleased)
	}
	s := Sources{Mode: SourcesEnforce, MAC: podMAC, Prefixes: []netip.Prefix{netip.MustParsePrefix("::/0")}}
	check.OK(t, b.Sources.Set(1, s))
	b.expect(WhereGuardEgress, udpFrom(far6), pass)
	s.Prefixes = append(s.Prefixes, netip.MustParsePrefix("10.9.0.0/24"))
	check.OK(t, b.Sources.Set(1, s))
	b.expect(WhereGuardEgress, udpFrom(far4), pass)
}

// The kernel of a receiver takes off any number of tags of VLAN 0. A frame of which the guard reads no address is dropped,
// on the interface and behind it.
func TestTagsDoNotHideAForeignAddress(t *testing.T) {
	b := newGuardedBench(t, Sources{Mode: SourcesEnforce, MAC: podMAC, Allow: AllowTagged})
	for _, where := range []Where{WhereGuardEgress, WhereObserverEgress} {
		b.expect(where, tagged(0, tagged(0, udpFrom(far4))), drop, ResultDropUnleased)
		b.expect(where, tagged(0, tagged(0, tagged(0, udpFrom(far4)))), drop, ResultDropMalformed)
	}
}

func (b *bench) allOffences() map[Offence]uint64 {
	b.t.Helper()
	return check.Value(b.Sources.Offences())(b.t)
}

func (b *bench) offences(o Offence) uint64 { b.t.Helper(); return b.allOffences()[o] }

func TestSourcesOutliveTheProcessAndEndWithTheSlot(t *testing.T) {
	b := newGuardedBench(t, Sources{})
	s := guarded(SourcesEnforce)
	s.MACs, s.Allow, s.SharedMAC = []net.HardwareAddr{vrrpMAC}, AllowRouter|AllowTagged, true
	check.OK(t, b.Sources.Set(1, s))
	check.OK(t, b.Sources.SetTrusted(testSegment, []net.HardwareAddr{remoteMAC}, true))
	check.OK(t, b.Sources.SetNodeAddresses([]netip.Addr{node4, node6}))
	b.expect(WhereGuardEgress, udpFrom(far4), drop, ResultDropUnleased)
	again := check.Value(assemble(b.dir, b.shared, Options{}))(t)
	equal(t, "sources", again.Sources.allowed.bySlot[1].Equal(s), true)
	equal(t, "locals", maps.Equal(again.Sources.locals.entries, b.Sources.locals.entries), true)
	equal(t, "locals wanted", maps.Equal(again.Sources.locals.wanted(), b.Sources.locals.entries), true)

	check.OK(t, again.Guards.Detach(1))
	equal(t, "addresses of the node", counter{t, again.maps.Sources}.Count(), 2)
	check.OK(t, again.Sources.SetNodeAddresses(nil))
	equal(t, "offences left", len(b.allOffences()), 0)
	for name, m := range map[string]interface{ Count() int }{
		"sources": counter{t, again.maps.Sources}, "MACs": counter{t, again.maps.SourceMacs},
	} {
		equal(t, name+" left", m.Count(), 0)
	}
	equal(t, "locals left", len(again.Sources.locals.entries), 1) // the device of the node
}

// An exclusive parent knows a slot without a source guard by its MAC, also after a restart, until the slot ends.
func TestUnguardedSlotIsKnownByItsMAC(t *testing.T) {
	b := newGuardedBench(t, Sources{})
	check.OK(t, b.Sources.Set(1, guarded(SourcesEnforce)))
	off := Sources{MAC: podMAC}
	check.OK(t, b.Sources.Set(1, off))
	check.OK(t, b.Sources.SetTrusted(testSegment, nil, true))
	b.expect(WhereGuardEgress, udpFrom(far4), pass)
	again := check.Value(assemble(b.dir, b.shared, Options{}))(t)
	equal(t, "sources", again.Sources.Of(1).Equal(off), true)
	equal(t, "locals wanted", len(again.Sources.locals.wanted()), 2) // on its segment and tagged
	check.OK(t, again.Guards.Detach(1))
	equal(t, "locals left", len(again.Sources.locals.entries), 0)
}

// counter counts the entries of a map.
type counter struct {
	t testing.TB
	m *ebpf.Map
}

func (c counter) Count() (n int) {
	key, value := make([]byte, c.m.KeySize()), make([]byte, c.m.ValueSize())
	it := c.m.Iterate()
	for it.Next(&key, &value) {
		n++
	}
	check.OK(c.t, it.Err())
	return n
}
