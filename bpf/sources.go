// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// SourceMode is the reaction of a source guard.
type SourceMode uint32

// The modes of a source guard.
const (
	// SourcesOff drops only frames from addresses that are leased to another slot, or fenced.
	SourcesOff SourceMode = 0
	// SourcesObserve counts the frames with a wrong source, and lets them pass. It drops the frames
	// that no pod may send, such as router advertisements.
	SourcesObserve = SourceMode(observerSourceFlagSOURCES_OBSERVE)
	// SourcesEnforce drops both.
	SourcesEnforce = SourceMode(observerSourceFlagSOURCES_ENFORCE)
)

// Allowances let a slot send frames that no pod may send otherwise. They are a set of bits.
type Allowances uint32

// The allowances.
const (
	// AllowRouter: what bpf/src/router.h and the types of ICMP and IGMP in bpf/src/judge.h call a router's.
	AllowRouter = Allowances(observerSourceFlagSOURCES_ROUTER)
	// AllowDHCPServer: answers to DHCP clients.
	AllowDHCPServer = Allowances(observerSourceFlagSOURCES_DHCP_SERVER)
	// AllowTagged: frames with a VLAN tag.
	AllowTagged = Allowances(observerSourceFlagSOURCES_TAGGED)
	// AllowBridge: STP, LLDP, LACP, 802.1X and other frames that bridges do not forward.
	AllowBridge = Allowances(observerSourceFlagSOURCES_BRIDGE)
	// AllowVRRP: packets of VRRP (RFC 9568).
	AllowVRRP = Allowances(observerSourceFlagSOURCES_VRRP)
	// AllowTurns: MACs beside its own for addresses of which one pod has the turn (FlagTurns). Interfaces that the
	// pod stacks send with them past its guard, so the observer judges their frames.
	AllowTurns = Allowances(observerSourceFlagSOURCES_TURNS)

	allowances = AllowRouter | AllowDHCPServer | AllowTagged | AllowBridge | AllowVRRP | AllowTurns
	sharedMAC  = Allowances(observerSourceFlagSOURCES_SHARED_MAC)
)

// Sources are the source addresses that the frames of one slot may have, beside the leases of the
// slot. With mode Off, only MAC counts: an exclusive parent lets its frames out (SourceGuard.SetTrusted).
type Sources struct {
	Mode SourceMode
	// MAC is the interface's, 6 bytes; nil with mode Off if it is not known. SharedMAC: a holder on
	// another node may have the same MAC.
	MAC       net.HardwareAddr
	SharedMAC bool
	// MACs and Prefixes are further MACs and addresses of the slot, such as link-local addresses.
	MACs     []net.HardwareAddr
	Prefixes []netip.Prefix
	Allow    Allowances
}

// Equal reports whether both mean the same to the kernel. The order of MACs and Prefixes counts.
func (s Sources) Equal(o Sources) bool {
	return s.Mode == o.Mode && bytes.Equal(s.MAC, o.MAC) && s.SharedMAC == o.SharedMAC && s.Allow == o.Allow &&
		slices.EqualFunc(s.MACs, o.MACs, func(a, b net.HardwareAddr) bool { return bytes.Equal(a, b) }) &&
		slices.Equal(s.Prefixes, o.Prefixes)
}

func (s Sources) check() error {
	if s.Mode == SourcesOff && s.MAC == nil {
		return nil
	}
	for _, mac := range append([]net.HardwareAddr{s.MAC}, s.MACs...) {
		if len(mac) != 6 {
			return fmt.Errorf("MAC %q has %d bytes, need 6", mac, len(mac))
		}
	}
	for _, p := range s.Prefixes {
		if !p.IsValid() {
			return fmt.Errorf("prefix %s is not valid", p)
		}
	}
	return nil
}

func (s Sources) bits() uint32 {
	if s.Mode == SourcesOff {
		return 0
	}
	bits := uint32(s.Mode) | uint32(s.Allow&allowances)
	if s.SharedMAC {
		bits |= uint32(sharedMAC)
	}
	return bits
}

// SourceGuard has the allowed sources of slots and of the node in the kernel's maps, and the MACs of the
// node's devices.
type SourceGuard struct {
	mu      *sync.Mutex
	maps    *observerMaps
	slots   *Slots
	allowed *allowed
	locals  *locals
}

// allowed are the allowed sources of the slots with a source guard, and those of the node.
type allowed struct {
	bySlot map[uint32]slotSources
	node   Sources
}

// Set tells the kernel the allowed sources of a slot's frames. They hold from the next frame
// on, and until the slot is detached. It returns ErrNoGuard if the slot has no guard.
func (g *SourceGuard) Set(slot uint32, s Sources) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.set(slot, s); err != nil {
		return fmt.Errorf("set the sources of slot %d: %w", slot, err)
	}
	return nil
}

func (g *SourceGuard) set(slot uint32, s Sources) error {
	if err := checkSlot(slot); err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	record, err := g.slots.read(slot)
	if err != nil {
		return err
	}
	if record.Status == slotFree {
		return ErrNoGuard
	}
	if s.Mode == SourcesOff {
		s = Sources{MAC: s.MAC}
	}
	// Add the new entries before the switch, and delete the old ones after it.
	wanted, before := s.entries(slot), g.allowed.bySlot[slot].entries(slot)
	if err := g.add(wanted); err != nil {
		return err
	}
	record.Sources, record.Mac.Part = s.bits(), macLayout(s.MAC)
	if err := g.slots.write(slot, record); err != nil {
		return err
	}
	if err := g.remove(before.without(wanted)); err != nil {
		return err
	}
	if s.Mode == SourcesOff && s.MAC == nil {
		delete(g.allowed.bySlot, slot)
	} else {
		g.allowed.bySlot[slot] = slotSources{Sources: s, segment: record.Segment}
	}
	return g.locals.tell()
}

// Of returns the last Sources of a slot, also those of an earlier process. The order of MACs
// and Prefixes may differ.
func (g *SourceGuard) Of(slot uint32) Sources {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.allowed.bySlot[slot].Sources
}

type slotSources struct {
	Sources
	segment uint32
}

// sourceEntries are the entries of the maps for one slot.
type sourceEntries struct {
	prefixes []observerSourceKey
	macs     []observerSourceMac
}

func (s Sources) entries(slot uint32) (e sourceEntries) {
	for _, p := range s.Prefixes {
		e.prefixes = append(e.prefixes, prefixLayout(slot, p))
	}
	for _, mac := range s.MACs {
		m := observerSourceMac{Slot: slot}
		m.Mac.Part = macLayout(mac)
		e.macs = append(e.macs, m)
	}
	return e
}

// without returns the entries that o lacks. It changes e.
func (e sourceEntries) without(o sourceEntries) sourceEntries {
	return sourceEntries{
		prefixes: slices.DeleteFunc(e.prefixes, func(p observerSourceKey) bool { return slices.Contains(o.prefixes, p) }),
		macs:     slices.DeleteFunc(e.macs, func(m observerSourceMac) bool { return slices.Contains(o.macs, m) }),
	}
}

func (g *SourceGuard) add(e sourceEntries) error {
	for _, p := range e.prefixes {
		if err := g.maps.Sources.Put(p, p.family()); err != nil {
			return fmt.Errorf("allow an address: %w", err)
		}
	}
	for _, m := range e.macs {
		if err := g.maps.SourceMacs.Put(m, uint8(1)); err != nil {
			return fmt.Errorf("allow a MAC: %w", err)
		}
	}
	return nil
}

func (g *SourceGuard) remove(e sourceEntries) error {
	for _, p := range e.prefixes {
		if err := deleteEntry(g.maps.Sources, p); err != nil {
			return fmt.Errorf("end the allowance of an address: %w", err)
		}
	}
	for _, m := range e.macs {
		if err := deleteEntry(g.maps.SourceMacs, m); err != nil {
			return fmt.Errorf("end the allowance of a MAC: %w", err)
		}
	}
	return nil
}

// forget removes all entries of a slot that is free. It needs mu.
func (g *SourceGuard) forget(slot uint32) error {
	if err := g.forgetOffences(slot); err != nil {
		return err
	}
	s, ok := g.allowed.bySlot[slot]
	if !ok {
		return nil
	}
	if err := g.remove(s.entries(slot)); err != nil {
		return err
	}
	delete(g.allowed.bySlot, slot)
	return g.locals.tell()
}

// inherit reads what an earlier process has set.
func (g *SourceGuard) inherit(used map[uint32]observerSlot) error {
	for slot, r := range used {
		if r.Sources == 0 && r.Mac.Part == [3]uint16{} {
			continue
		}
		g.allowed.bySlot[slot] = slotSources{segment: r.Segment, Sources: Sources{
			Mode: SourceMode(r.Sources) & (SourcesObserve | SourcesEnforce), MAC: macOf(r.Mac.Part),
			Allow: Allowances(r.Sources) & allowances, SharedMAC: Allowances(r.Sources)&sharedMAC != 0,
		}}
	}
	if err := g.inheritAllowed(); err != nil {
		return err
	}
	return g.locals.inherit()
}

func (g *SourceGuard) inheritAllowed() error {
	var orphans sourceEntries
	prefixes, err := entriesOf[observerSourceKey, uint8](g.maps.Sources)
	if err != nil {
		return fmt.Errorf("list allowed addresses: %w", err)
	}
	for p := range prefixes {
		if s, ok := g.allowed.bySlot[p.Slot]; ok {
			s.Prefixes = append(s.Prefixes, p.prefix())
			g.allowed.bySlot[p.Slot] = s
		} else if p.Slot == nodeSlot {
			g.allowed.node.Prefixes = append(g.allowed.node.Prefixes, p.prefix())
		} else {
			orphans.prefixes = append(orphans.prefixes, p)
		}
	}
	macs, err := entriesOf[observerSourceMac, uint8](g.maps.SourceMacs)
	if err != nil {
		return fmt.Errorf("list allowed MACs: %w", err)
	}
	for m := range macs {
		if s, ok := g.allowed.bySlot[m.Slot]; ok {
			s.MACs = append(s.MACs, macOf(m.Mac.Part))
			g.allowed.bySlot[m.Slot] = s
		} else {
			orphans.macs = append(orphans.macs, m)
		}
	}
	return g.remove(orphans)
}

// sourcePrefixOffset is the number of bits of a key before its address.
const sourcePrefixOffset = int(observerSourcePrefixPREFIX_OF_KEY)

func prefixLayout(slot uint32, p netip.Prefix) observerSourceKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	k := observerSourceKey{Prefix: uint32(sourcePrefixOffset + bits), Slot: slot}
	k.Addr.Word = Key{Addr: p.Masked().Addr()}.layout().Addr.Word
	return k
}

// family returns the value of an entry. The kernel has IPv4 addresses as IPv4-mapped ones, which a
// short IPv6 prefix may cover.
func (k observerSourceKey) family() uint8 {
	if int(k.Prefix) < sourcePrefixOffset+96 {
		return uint8(observerSourceFamilySOURCE_IPV6)
	}
	return uint8(observerSourceFamilySOURCE_ANY)
}

func (k observerSourceKey) prefix() netip.Prefix {
	var l observerLeaseKey
	l.Addr.Word = k.Addr.Word
	addr, bits := l.key().Addr, int(k.Prefix)-sourcePrefixOffset
	if addr.Is4() && bits >= 96 {
		bits -= 96
	}
	return netip.PrefixFrom(addr, bits)
}
