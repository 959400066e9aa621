// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"
)

// Conversions between the kernel's layout and Go's. Addresses and MACs are bytes in wire order on
// both sides.

func (k Key) layout() observerLeaseKey {
	l := observerLeaseKey{Segment: k.Segment}
	addr := k.Addr.As16()
	for i := range l.Addr.Word {
		l.Addr.Word[i] = binary.NativeEndian.Uint32(addr[4*i:])
	}
	return l
}

func (l observerLeaseKey) key() Key {
	var addr [16]byte
	for i, word := range l.Addr.Word {
		binary.NativeEndian.PutUint32(addr[4*i:], word)
	}
	return Key{Segment: l.Segment, Addr: netip.AddrFrom16(addr).Unmap()}
}

// macLayout converts a MAC of 6 bytes, or an empty one to the zero MAC.
func macLayout(mac net.HardwareAddr) (part [3]uint16) {
	var b [6]byte
	copy(b[:], mac)
	for i := range part {
		part[i] = binary.NativeEndian.Uint16(b[2*i:])
	}
	return part
}

// macOf returns nil for the zero MAC.
func macOf(part [3]uint16) net.HardwareAddr {
	if part == ([3]uint16{}) {
		return nil
	}
	mac := make(net.HardwareAddr, 0, 6)
	for _, p := range part {
		mac = binary.NativeEndian.AppendUint16(mac, p)
	}
	return mac
}

// speaker splits the word of speaker.h. The MAC is nil if there was no speaker.
func speaker(whole uint64) (net.HardwareAddr, Kind) {
	if whole == 0 {
		return nil, 0
	}
	b := binary.NativeEndian.AppendUint64(nil, whole)
	return net.HardwareAddr(b[:6]), Kind(binary.NativeEndian.Uint16(b[6:])) &^ kindAnnounces
}

// announces reports whether the word of a hit is of a frame that nobody asked for.
func announces(whole uint64) bool { return Kind(whole>>48)&kindAnnounces != 0 }

// speakerAt splits the same word with the program that saw the frame in its high byte (state.h).
func speakerAt(whole uint64) (net.HardwareAddr, Kind, Where) {
	mac, kind := speaker(whole &^ (0xff << 56))
	return mac, kind, Where(whole >> 56)
}

func (l Lease) layout() observerLease {
	o := observerLease{Token: l.Token, Network: l.Network, Slot: l.Slot, Flags: uint32(l.Flags), Disproved: l.Disproved, DisprovedBefore: l.DisprovedBefore}
	o.Mac.Part = macLayout(l.MAC)
	return o
}

func (l observerLease) lease() Lease {
	return Lease{
		Token: l.Token, Network: l.Network, Slot: l.Slot, MAC: macOf(l.Mac.Part), Flags: LeaseFlags(l.Flags),
		Disproved: l.Disproved, DisprovedBefore: l.DisprovedBefore,
	}
}

func (s observerState) state() State {
	st := State{
		MaxToken: s.Max, AckedToken: s.Acked,
		LastHit: time.Duration(s.HitNs), Hits: s.Hits, LastProbe: time.Duration(s.ProbeNs), Probes: s.Probes,
	}
	st.AckMAC, _ = speaker(s.AckedBy)
	st.HitMAC, st.HitKind, st.HitWhere = speakerAt(s.HitBy)
	st.ProbeMAC, st.ProbeKind, st.ProbeWhere = speakerAt(s.ProbeBy)
	return st
}

func (s observerSighting) sighting() Sighting {
	g := Sighting{LastSeen: time.Duration(s.Ns), LastProbe: time.Duration(s.ProbeNs)}
	g.MAC, g.Kind = speaker(s.By)
	g.ProbeMAC, _ = speaker(s.ProbeBy)
	return g
}

func (e observerEvent) event() Event {
	ev := Event{
		Type: EventType(e.Type), Where: Where(e.Where), Key: e.Key.key(),
		Token: e.Token, Mine: e.Mine, At: time.Duration(e.Ns),
	}
	ev.MAC, ev.Kind = speaker(e.By)
	ev.Announces = announces(e.By)
	return ev
}
