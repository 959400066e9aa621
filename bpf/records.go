// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/enforce"
)

// records give the guards access to the slots in the maps.
type records struct{ *tables }

var _ enforce.Slots = records{}

func (r records) Lock()                        { r.mu.Lock() }
func (r records) Unlock()                      { r.mu.Unlock() }
func (r records) Check(slot uint32) error      { return checkSlot(slot) }
func (r records) Settle() error                { return r.settle() }
func (r records) Shared() map[string]*ebpf.Map { return r.shared }

func (r records) Load(slot uint32, verify bool) (attach.Programs, error) {
	return r.guards.Load(enforce.ProgramName(slot), slot, verify)
}

func (r records) Record(slot uint32) (enforce.Record, error) {
	s, err := r.slot(slot)
	return enforce.Record{
		Used: s.Status != slotFree, Segment: s.Segment, NetNS: s.Netns, Verify: s.Flags&slotVerify != 0,
	}, err
}

// Change keeps host link and sources, and on the same segment the named addresses.
func (r records) Change(slot uint32, record enforce.Record) error {
	s, err := r.slot(slot)
	if err != nil {
		return err
	}
	s.describe(record)
	return r.putSlot(slot, s)
}

// describe keeps a killed slot dead until it is detached: after a crash its guard is attached
// again, but its pod stays silenced.
func (s *observerSlot) describe(r enforce.Record) {
	if s.Segment != r.Segment {
		s.Leased4, s.Leased6 = 0, observerSlot{}.Leased6
	}
	s.Segment, s.Netns, s.Flags = r.Segment, r.NetNS, 0
	switch {
	case s.Status == slotDead:
	case r.Used:
		s.Status = slotAlive
	default:
		s.Status = slotFree
	}
	if r.Verify {
		s.Flags = slotVerify
	}
}

func (r records) SetHostLink(slot, ifindex uint32) error {
	s, err := r.slot(slot)
	if err != nil || s.HostLink == ifindex {
		return err
	}
	s.HostLink = ifindex
	return r.putSlot(slot, s)
}

func (r records) Kill(slot uint32) error {
	s, err := r.slot(slot)
	if err != nil {
		return err
	}
	s.Status = slotDead
	if err := r.putSlot(slot, s); err != nil {
		return err
	}
	if err := r.openGate(); err != nil || !r.hasTwin(slot) {
		return err
	}
	return r.tellLocals()
}

func (r records) Free(slot uint32) error {
	if err := r.forgetSockets(slot); err != nil { // first: nothing would look at a slot that is free
		return err
	}
	if err := r.putSlot(slot, observerSlot{}); err != nil {
		return err
	}
	return r.forgetSources(slot)
}
