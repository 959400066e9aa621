// SPDX-License-Identifier: Apache-2.0

package bpf

import "net/netip"

// The record of a slot names one IPv4 and one IPv6 address that are leased to the slot, for the
// usual packets (usual.h). An address is named after its lease is written, and unnamed before the
// lease changes. So a named address is always leased to the slot.

// nameLeased names an address of a slot, unless another one of the family is named. It needs mu.
func (ls *Leases) nameLeased(key Key, slot uint32) error {
	return ls.changeLeased(key, slot, func(named, addr netip.Addr) netip.Addr {
		if named.IsUnspecified() {
			return addr
		}
		return named
	})
}

// unnameLeased ends the naming of an address. It needs mu.
func (ls *Leases) unnameLeased(key Key, slot uint32) error {
	return ls.changeLeased(key, slot, func(named, addr netip.Addr) netip.Addr {
		if named == addr {
			return unspecified(addr.Is4())
		}
		return named
	})
}

// changeLeased replaces the named address of the key's family. A slot names none of another segment.
func (ls *Leases) changeLeased(key Key, slot uint32, change func(named, addr netip.Addr) netip.Addr) error {
	if slot == 0 {
		return nil
	}
	return ls.slots.change(slot, func(s *observerSlot) {
		if addr := key.Addr.Unmap(); s.Segment == key.Segment {
			s.name(change(s.named(addr.Is4()), addr))
		}
	})
}

func unspecified(is4 bool) netip.Addr {
	if is4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// named returns the named address of a family, or the unspecified one.
func (s *observerSlot) named(is4 bool) netip.Addr {
	l := Key{Addr: unspecified(is4)}.layout()
	if is4 {
		l.Addr.Word[3] = s.Leased4
	} else {
		l.Addr.Word = s.Leased6.Word
	}
	return l.key().Addr
}

func (s *observerSlot) name(addr netip.Addr) {
	word := Key{Addr: addr}.layout().Addr.Word
	if addr.Is4() {
		s.Leased4 = word[3]
	} else {
		s.Leased6.Word = word
	}
}
