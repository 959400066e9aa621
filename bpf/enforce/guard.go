// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/pins"
)

var (
	// ErrPinned is returned by StageGuard if the slot guards another living device.
	ErrPinned = errors.New("slot has a living guard on another device")
	// ErrNoGuard is returned by GuardLink if the slot has no guard.
	ErrNoGuard = errors.New("the slot has no guard: attach it to the pod's interface first")
)

// Guard describes the two programs on one pod interface.
type Guard struct {
	// Slot is unique on the node among living guards, 1 to MaxSlot.
	Slot uint32
	// Segment is the ifindex of the parent in the host's network namespace.
	Segment int
	// NetNS is the path of Interface's network namespace; "" is the calling thread's.
	NetNS string
	// Interface is the pod's device, by name. Index is its ifindex, which a pod cannot change; 0: unknown.
	Interface string
	Index     int
	// Verify makes the guard verify claims. On an SR-IOV VF no observer sees them.
	Verify bool
}

// open opens the pod's device.
func (g Guard) open() (*attach.Device, error) {
	if g.Index != 0 {
		if dev, err := attach.OpenIndex(g.NetNS, g.Index); !attach.IsGone(err) {
			return dev, err
		}
	}
	return attach.OpenDevice(g.NetNS, g.Interface)
}

func (g Guard) record(netns uint32) Record {
	return Record{Used: true, Segment: uint32(g.Segment), NetNS: netns, Verify: g.Verify}
}

// Guards are the programs on the interfaces of pods. The type attaches them, and sweeps the guards of
// devices that no longer exist. Its methods may be called concurrently.
type Guards struct {
	dir    pins.Dir
	noTCX  *atomic.Bool
	slots  Slots
	stages *stages
	loaded loaded
	// locks serialises work on the guard of one slot, which may wait for the kernel. A slot's lock
	// is taken before that of slots.
	locks *slotLocks

	*hostLinks
}

// Open returns the guards of this node: none, or those that an earlier process has pinned, with
// their programs replaced by this version's, in place. The used slots are those with a record.
// noTCX: the guards stay in filters; PinGuard sets it on a kernel without tcx. Host links are
// looked for in the calling thread's network namespace.
func Open(dir pins.Dir, noTCX *atomic.Bool, slots Slots, used []uint32) (*Guards, error) {
	st := &stages{slots: slots, staged: map[uint32]stagedGuard{}, unrecorded: map[uint32]bool{}}
	locks := &slotLocks{}
	gs := &Guards{
		dir: dir, noTCX: noTCX, slots: slots, stages: st, loaded: loaded{slots}, locks: locks,
		hostLinks: &hostLinks{slots: slots, locks: locks, links: map[uint32]hostLink{}},
	}
	for _, slot := range used {
		st.unrecorded[slot] = true
	}
	return gs, gs.reload()
}

func (gs *Guards) reload() error {
	slots, err := gs.dir.Guards()
	if err != nil {
		return err
	}
	for _, slot := range slots {
		r, err := gs.slots.Record(slot)
		if err != nil {
			return err
		}
		load := func() (attach.Programs, error) { return gs.slots.Load(slot, r.Verify) }
		if err := gs.dir.Guard(slot).Reload(load); err != nil {
			return fmt.Errorf("reload guard of slot %d: %w", slot, err)
		}
	}
	if err := gs.hostLinks.reload(); err != nil {
		return fmt.Errorf("reload the guards of host links: %w", err)
	}
	return nil
}

// RemoveFilters removes the filters of staged guards, and those of host links.
func (gs *Guards) RemoveFilters() error {
	return errors.Join(gs.stages.removeAll(), gs.hostLinks.removeAll())
}

// GuardAttached reports whether both programs of the slot are attached to an existing device. It
// waits while PinGuard moves this slot.
func (gs *Guards) GuardAttached(slot uint32) (bool, error) {
	defer gs.locks.lock(slot)()
	attached, err := gs.dir.Guard(slot).Attached()
	if err == nil && !attached {
		attached, err = gs.stages.enforces(slot)
	}
	if err != nil {
		return false, fmt.Errorf("check guard of slot %d: %w", slot, err)
	}
	return attached, nil
}
