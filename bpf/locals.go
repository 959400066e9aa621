// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
)

// everySegment is the segment of a MAC that may send tagged frames on any parent.
const everySegment = uint32(observerLocalSegmentEVERY_SEGMENT)

// localNode is the slot of a MAC of the node's own devices. Only the node sends with it.
const localNode = uint32(observerLocalSlotLOCAL_NODE)

// SetTrusted tells the kernel the MACs of the node's own devices that send on a parent. If exclusive
// is true, the observer lets out by the parent only frames of the node with these MACs, and frames of
// the slots. A bridge port is never exclusive, as it forwards for others.
func (g *SourceGuard) SetTrusted(parent int, macs []net.HardwareAddr, exclusive bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.locals.setTrusted(parent, macs, exclusive); err != nil {
		return fmt.Errorf("tell the devices on ifindex %d: %w", parent, err)
	}
	return nil
}

func (l *locals) setTrusted(parent int, macs []net.HardwareAddr, exclusive bool) error {
	trusted := make([][3]uint16, 0, len(macs))
	for _, mac := range macs {
		if len(mac) == 6 {
			trusted = append(trusted, macLayout(mac))
		}
	}
	l.trusted[uint32(parent)] = trusted
	if err := l.tell(); err != nil {
		return err
	}
	var p observerParent
	known, err := lookup(l.maps.Parents, uint32(parent), &p)
	if err != nil || !known {
		return err
	}
	flags := p.Flags &^ parentExclusive
	if exclusive {
		flags |= parentExclusive
	}
	if flags == p.Flags {
		return nil
	}
	p.Flags = flags
	if err := l.maps.Parents.Put(uint32(parent), p); err != nil {
		return err
	}
	return l.tell()
}

// SetNodeAddresses tells the kernel the addresses of the node. An exclusive parent lets out tunnels from
// them that carry packets of pods. Until the first call, pods may use the MACs of the node's devices: an
// upgrade must not cut such tunnels.
func (g *SourceGuard) SetNodeAddresses(addrs []netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	next := Sources{}
	for _, a := range addrs {
		next.Prefixes = append(next.Prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	wanted := next.entries(nodeSlot)
	err := g.add(wanted)
	if err == nil {
		err = g.remove(g.allowed.node.entries(nodeSlot).without(wanted))
	}
	if err != nil {
		return fmt.Errorf("tell the node's addresses: %w", err)
	}
	g.allowed.node = next
	return g.locals.tell()
}

// nodeSlot has the addresses of the node among the sources. No guard has it.
const nodeSlot = 0

// locals are the MACs of this node's devices in the kernel's map. They need mu.
type locals struct {
	maps    *observerMaps
	slots   *Slots
	allowed *allowed
	// trusted are the MACs of the node's devices, by segment. entries are those in the kernel, and index is
	// their index.
	trusted map[uint32][][3]uint16
	entries map[observerLocalKey]uint32
	index   *localIndex
}

// tell writes the MACs of this node's devices and their index, new MACs first.
func (l *locals) tell() error {
	wanted := l.wanted()
	for key, slot := range wanted {
		if present, ok := l.entries[key]; ok && present == slot {
			continue
		}
		if err := l.maps.Locals.Put(key, slot); err != nil {
			return fmt.Errorf("add the MAC of a device: %w", err)
		}
		l.entries[key] = slot
	}
	for key := range l.entries {
		if _, ok := wanted[key]; ok {
			continue
		}
		if err := deleteEntry(l.maps.Locals, key); err != nil {
			return fmt.Errorf("remove the MAC of a device: %w", err)
		}
		delete(l.entries, key)
	}
	return l.writeIndex()
}

// wanted returns the slot of each MAC. An allowed MAC has none, as several pods may share it. But with AllowTurns,
// one of them stands for all that have a MAC of VRRP. The slots of ipvlan have the parent's MAC, so their network
// namespace stands for it.
func (l *locals) wanted() map[observerLocalKey]uint32 {
	wanted := map[observerLocalKey]uint32{}
	put := func(segment uint32, mac [3]uint16, slot uint32) {
		wanted[localKey(segment, mac)] = slot
		wanted[localKey(everySegment, mac)] = 0
	}
	node := localNode
	if l.allowed.node.Prefixes == nil {
		node = 0 // SetNodeAddresses comes first
	}
	for segment, macs := range l.trusted {
		for _, mac := range macs {
			wanted[localKey(segment, mac)] = node
		}
	}
	owners := map[observerLocalKey]uint32{}
	for slot, s := range l.allowed.bySlot {
		for _, mac := range s.MACs {
			key, judge := localKey(s.segment, macLayout(mac)), uint32(0)
			if s.Allow&AllowTurns != 0 && bytes.HasPrefix(mac, []byte{0, 0, 0x5e, 0}) {
				judge = slot
			}
			owners[key] = l.ownerOf(owners[key], judge)
		}
	}
	for slot, s := range l.allowed.bySlot {
		mac := macLayout(s.MAC)
		if l.isParents(s.segment, mac) { // ipvlan
			mac = l.netnsOf(slot)
		}
		key := localKey(s.segment, mac)
		owners[key] = l.ownerOf(owners[key], slot)
	}
	for key, slot := range owners {
		put(key.Segment, key.Mac.Part, slot)
	}
	return wanted
}

// netnsOf is local_netns of local.h.
func (l *locals) netnsOf(slot uint32) [3]uint16 {
	s, err := l.slots.read(slot)
	if err != nil {
		return [3]uint16{}
	}
	return [3]uint16{bits.ReverseBytes16(0x0100), uint16(s.Netns >> 16), uint16(s.Netns)}
}

func localKey(segment uint32, mac [3]uint16) observerLocalKey {
	key := observerLocalKey{Segment: segment}
	key.Mac.Part = mac
	return key
}

// ownerOf returns the slot of two that owns their common MAC: the live one. A sandbox that is made
// again may have the MAC of its predecessor, whose slot is dead until a sweep. 0 is no slot.
func (l *locals) ownerOf(a, b uint32) uint32 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	for _, slot := range []uint32{a, b} {
		if s, err := l.slots.read(slot); err == nil && s.Status == slotDead {
			return a + b - slot
		}
	}
	return max(a, b)
}

// hasTwin reports whether another slot on the segment has the MAC of a slot.
func (l *locals) hasTwin(slot uint32) bool {
	own, ok := l.allowed.bySlot[slot]
	for other, s := range l.allowed.bySlot {
		if ok && other != slot && s.segment == own.segment && macLayout(s.MAC) == macLayout(own.MAC) {
			return true
		}
	}
	return false
}

func (l *locals) isParents(segment uint32, mac [3]uint16) bool {
	var p observerParent
	known, err := lookup(l.maps.Parents, segment, &p)
	return err == nil && known && p.Mac.Part == mac
}

// inherit reads the devices that an earlier process has told the kernel.
func (l *locals) inherit() error {
	var err error
	if l.entries, err = entriesOf[observerLocalKey, uint32](l.maps.Locals); err != nil {
		return fmt.Errorf("list the MACs of devices: %w", err)
	}
	for key, slot := range l.entries {
		if key.Segment != everySegment && (slot == localNode || slot == 0 && !l.allowsMAC(key)) {
			l.trusted[key.Segment] = append(l.trusted[key.Segment], key.Mac.Part)
		}
	}
	return l.writeIndex()
}

func (l *locals) allowsMAC(key observerLocalKey) bool {
	for _, s := range l.allowed.bySlot {
		for _, mac := range s.MACs {
			if localKey(s.segment, macLayout(mac)) == key {
				return true
			}
		}
	}
	return false
}
