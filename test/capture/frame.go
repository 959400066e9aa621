// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/segment/claim"
)

// TypeClaim is the ethertype of claims and acks.
const TypeClaim = 0x88B5

// Frame is one frame that entered the switch.
type Frame struct {
	// Time is the kernel's timestamp of the arrival at the port.
	Time time.Time
	// Port is the switch port at which the frame arrived.
	Port                string
	Source, Destination net.HardwareAddr
	// Type is the ethertype behind VLAN tags.
	Type uint16
	// Speaks lists the addresses that the sender uses as its own: the sender of an ARP message (RFC 826), the
	// source of an IP packet, the target of a neighbour advertisement (RFC 4861). It is empty for an ARP probe and
	// for duplicate address detection, whose sender is unspecified.
	Speaks []netip.Addr
	// Target is the address that an ARP message, a neighbour solicitation or advertisement is about.
	Target netip.Addr
	// Kind is a short name of the frame's type, such as "ARP probe" or "claim".
	Kind string
	// Payload starts after the ethertype. Long frames are truncated.
	Payload []byte
}

// String is for test logs.
func (f Frame) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s > %s %s", f.Time.Format("15:04:05.000000"), f.Port, f.Source, f.Destination, f.Kind)
	for _, a := range f.Speaks {
		fmt.Fprintf(&b, " from %s", a)
	}
	if f.Target.IsValid() {
		fmt.Fprintf(&b, " about %s", f.Target)
	}
	return b.String()
}

// Decode reads all fields that are in an Ethernet frame. A truncated frame keeps the fields before its end.
func Decode(data []byte) Frame {
	var f Frame
	if len(data) < 14 {
		f.Kind = "truncated"
		return f
	}
	f.Destination, f.Source = net.HardwareAddr(data[0:6]), net.HardwareAddr(data[6:12])
	f.Type, f.Payload = binary.BigEndian.Uint16(data[12:]), data[14:]
	for (f.Type == unix.ETH_P_8021Q || f.Type == unix.ETH_P_8021AD) && len(f.Payload) >= 4 {
		f.Type, f.Payload = binary.BigEndian.Uint16(f.Payload[2:]), f.Payload[4:]
	}
	switch f.Type {
	case unix.ETH_P_ARP:
		f.decodeARP()
	case unix.ETH_P_IP:
		f.decodeIPv4()
	case unix.ETH_P_IPV6:
		f.decodeIPv6()
	case TypeClaim:
		f.decodeClaim()
	default:
		f.Kind = fmt.Sprintf("ethertype %#04x", f.Type)
	}
	return f
}

func (f *Frame) speak(addr netip.Addr) {
	if !addr.IsUnspecified() {
		f.Speaks = append(f.Speaks, addr)
	}
}

// decodeARP reads an Ethernet/IPv4 message of RFC 826.
func (f *Frame) decodeARP() {
	p := f.Payload
	if len(p) < 28 {
		f.Kind = "truncated ARP"
		return
	}
	switch binary.BigEndian.Uint16(p[6:]) {
	case 1:
		f.Kind = "ARP request"
	case 2:
		f.Kind = "ARP reply"
	default:
		f.Kind = "ARP"
	}
	f.speak(netip.AddrFrom4([4]byte(p[14:18])))
	f.Target = netip.AddrFrom4([4]byte(p[24:28]))
	if len(f.Speaks) == 0 {
		f.Kind = "ARP probe" // RFC 5227, section 1.1
	}
}

func (f *Frame) decodeIPv4() {
	if len(f.Payload) < 20 {
		f.Kind = "truncated IPv4"
		return
	}
	f.Kind = fmt.Sprintf("IPv4 protocol %d", f.Payload[9])
	f.speak(netip.AddrFrom4([4]byte(f.Payload[12:16])))
}

// decodeIPv6 expects neighbour discovery directly after the IPv6 header, as every sender writes it.
func (f *Frame) decodeIPv6() {
	p := f.Payload
	if len(p) < 40 {
		f.Kind = "truncated IPv6"
		return
	}
	f.Kind = fmt.Sprintf("IPv6 next header %d", p[6])
	f.speak(netip.AddrFrom16([16]byte(p[8:24])))
	const solicitation, advertisement = 135, 136
	if p[6] != unix.IPPROTO_ICMPV6 || len(p) < 40+24 {
		return
	}
	switch p[40] {
	case solicitation:
		f.Kind = "neighbour solicitation"
		f.Target = netip.AddrFrom16([16]byte(p[48:64]))
	case advertisement:
		f.Kind = "neighbour advertisement"
		f.Target = netip.AddrFrom16([16]byte(p[48:64]))
		f.speak(f.Target)
	}
}

// decodeClaim reads the address and the ack bit of a claim. A claim does not speak for an address.
func (f *Frame) decodeClaim() {
	p := f.Payload
	switch {
	case len(p) >= 48 && string(p[:4]) == "FLC1" && p[7]&1 == 0:
		f.Kind = "claim"
	case len(p) >= 48 && string(p[:4]) == "FLC2" && p[7]&1 != 0:
		f.Kind = "ack"
	default:
		f.Kind = "ethertype 0x88b5"
		return
	}
	f.Target = netip.AddrFrom16([16]byte(p[16:32])).Unmap()
}

// Claim decodes the payload of a claim or an ack that one of keys has signed.
func Claim(payload []byte, keys ...claim.Key) (claim.Frame, error) {
	if len(payload) < claim.Len {
		return claim.Frame{}, fmt.Errorf("a claim of %d bytes, want %d", len(payload), claim.Len)
	}
	f := claim.Frame{
		Flags:   claim.Flags(binary.BigEndian.Uint32(payload[4:])),
		Network: binary.BigEndian.Uint64(payload[8:]),
		Addr:    netip.AddrFrom16([16]byte(payload[16:32])).Unmap(),
		Token:   binary.BigEndian.Uint64(payload[32:]),
	}
	for _, key := range keys {
		if f.Marshal(key) == [claim.Len]byte(payload) {
			return f, nil
		}
	}
	return f, fmt.Errorf("no key has signed the claim %x", payload)
}
