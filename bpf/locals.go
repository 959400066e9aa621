// SPDX-License-Identifier: Apache-2.0

package bpf

import (
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
func (o *observers) SetTrusted(parent int, macs []net.HardwareAddr, exclusive bool) error {
	o.tables.mu.Lock()
	defer o.tables.mu.Unlock()
	if err := o.setTrusted(parent, macs, exclusive); err != nil {
		return fmt.Errorf("tell the devices on ifindex %d: %w", parent, err)
	}
	return nil
}

func (o *observers) setTrusted(parent int, macs []net.HardwareAddr, exclusive bool) error {
	trusted := make([][3]uint16, 0, len(macs))
	for _, mac := range macs {
		if len(mac) == 6 {
			trusted = append(trusted, macLayout(mac))
		}
	}
	o.tables.trusted[uint32(parent)] = trusted
	if err := o.tables.tellLocals(); err != nil {
		return err
	}
	var p observerParent
	known, err := lookup(o.tables.maps.Parents, uint32(parent), &p)
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
	if err := o.tables.maps.Parents.Put(uint32(parent), p); err != nil {
		return err
	}
	return o.tables.tellLocals()
}

// SetNodeAddresses tells the kernel the addresses of the node. An exclusive parent lets out tunnels from
// them that carry packets of pods. Until the first call, pods may use the MACs of the node's devices: an
// upgrade must not cut such tunnels.
func (t *tables) SetNodeAddresses(addrs []netip.Addr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := Sources{}
	for _, a := range addrs {
		next.Prefixes = append(next.Prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	wanted := next.entries(nodeSlot)
	err := t.addSources(wanted)
	if err == nil {
		err = t.deleteSources(t.node.entries(nodeSlot).without(wanted))
	}
	if err != nil {
		return fmt.Errorf("tell the node's addresses: %w", err)
	}
	t.node = next
	return t.tellLocals()
}

// nodeSlot has the addresses of the node among the sources. No guard has it.
const nodeSlot = 0

// tellLocals writes the MACs of this node's devices and their index, new MACs first. It needs mu.
func (t *tables) tellLocals() error {
	wanted := t.wantedLocals()
	for key, slot := range wanted {
		if present, ok := t.locals[key]; ok && present == slot {
			continue
		}
		if err := t.maps.Locals.Put(key, slot); err != nil {
			return fmt.Errorf("add the MAC of a device: %w", err)
		}
		t.locals[key] = slot
	}
	for key := range t.locals {
		if _, ok := wanted[key]; ok {
			continue
		}
		if err := deleteEntry(t.maps.Locals, key); err != nil {
			return fmt.Errorf("remove the MAC of a device: %w", err)
		}
		delete(t.locals, key)
	}
	return t.indexLocals()
}

// wantedLocals returns the slot of each MAC. An allowed MAC has none, as several pods may share it. The
// slots of ipvlan have the parent's MAC, so their network namespace stands for it.
func (t *tables) wantedLocals() map[observerLocalKey]uint32 {
	wanted := map[observerLocalKey]uint32{}
	put := func(segment uint32, mac [3]uint16, slot uint32) {
		wanted[localKey(segment, mac)] = slot
		wanted[localKey(everySegment, mac)] = 0
	}
	node := localNode
	if t.node.Prefixes == nil {
		node = 0 // SetNodeAddresses comes first
	}
	for segment, macs := range t.trusted {
		for _, mac := range macs {
			wanted[localKey(segment, mac)] = node
		}
	}
	for _, s := range t.sources {
		for _, mac := range s.MACs {
			put(s.segment, macLayout(mac), 0)
		}
	}
	owners := map[observerLocalKey]uint32{}
	for slot, s := range t.sources {
		mac := macLayout(s.MAC)
		if t.isParents(s.segment, mac) { // ipvlan
			mac = t.netnsOf(slot)
		}
		key := localKey(s.segment, mac)
		owners[key] = t.ownerOf(owners[key], slot)
	}
	for key, slot := range owners {
		put(key.Segment, key.Mac.Part, slot)
	}
	return wanted
}

// netnsOf is local_netns of local.h.
func (t *tables) netnsOf(slot uint32) [3]uint16 {
	s, err := t.slot(slot)
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
func (t *tables) ownerOf(a, b uint32) uint32 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	for _, slot := range []uint32{a, b} {
		if s, err := t.slot(slot); err == nil && s.Status == slotDead {
			return a + b - slot
		}
	}
	return max(a, b)
}

// hasTwin reports whether another slot on the segment has the MAC of a slot.
func (t *tables) hasTwin(slot uint32) bool {
	own, ok := t.sources[slot]
	for other, s := range t.sources {
		if ok && other != slot && s.segment == own.segment && macLayout(s.MAC) == macLayout(own.MAC) {
			return true
		}
	}
	return false
}

func (t *tables) isParents(segment uint32, mac [3]uint16) bool {
	var p observerParent
	known, err := lookup(t.maps.Parents, segment, &p)
	return err == nil && known && p.Mac.Part == mac
}

// inheritTrusted reads the devices that an earlier process has told the kernel.
func (t *tables) inheritTrusted() error {
	var err error
	if t.locals, err = entriesOf[observerLocalKey, uint32](t.maps.Locals); err != nil {
		return fmt.Errorf("list the MACs of devices: %w", err)
	}
	for key, slot := range t.locals {
		if key.Segment != everySegment && (slot == localNode || slot == 0 && !t.allowsMAC(key)) {
			t.trusted[key.Segment] = append(t.trusted[key.Segment], key.Mac.Part)
		}
	}
	return t.indexLocals()
}

func (t *tables) allowsMAC(key observerLocalKey) bool {
	for _, s := range t.sources {
		for _, mac := range s.MACs {
			if localKey(s.segment, macLayout(mac)) == key {
				return true
			}
		}
	}
	return false
}
