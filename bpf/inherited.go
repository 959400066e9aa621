package bpf

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// A process that ends in the middle of something leaves slots in use of which nothing tells the device: filters, or
// not even these, and no pinned link; and one may be killed whose guard never came, or was swept before. The kernel
// knows whether they still guard one: what sits on a living device holds its program.

// inherit lists the slots that a process before has left in use.
func (k *Kernel) inherit() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for slot := uint32(1); slot < k.maps.Slots.MaxEntries(); slot++ {
		s, err := k.slot(slot)
		if err != nil {
			return err
		}
		if s.Status != slotFree {
			k.untold[slot] = true
		}
	}
	return nil
}

// findStage is the stage that a process before has left, with programs if links are missing.
func (k *Kernel) findStage(g Guard, record observerSlot) (stagedGuard, error) {
	dev, err := openDevice(g.NetNS, g.Interface)
	if err != nil {
		return stagedGuard{}, err
	}
	defer dev.close()
	if dev.netns != record.Netns {
		return stagedGuard{}, fmt.Errorf("%w: %s is another namespace by now", ErrNoDevice, g.NetNS)
	}
	s := stagedGuard{Guard: g, netns: dev.netns, index: dev.index}
	attached, err := k.dir.guard(g.Slot).attached()
	if err == nil && !attached && !k.noTCX.Load() {
		s.programs, err = k.loadGuardPair(g.Slot, record)
	}
	return s, err
}

// takeUp knows a guard from now on that a process before has staged, where it stays staged: its filters go with its slot.
func (k *Kernel) takeUp(s stagedGuard) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.staged[s.Slot]; !known {
		s.programs = nil // the kernel has them
		k.staged[s.Slot] = s
	}
}

// The names of programs in the kernel, of 15 bytes at most: of a guard's both, with the slot, and of an observer's.
const (
	guardPrefix  = "guard_"
	observerName = "observer"
)

func guardName(slot uint32) string { return guardPrefix + strconv.FormatUint(uint64(slot), 10) }

// loadedGuards are the slots whose programs the kernel holds, whoever has loaded them.
func (k *Kernel) loadedGuards() (map[uint32]bool, error) {
	shared, err := k.sharedIDs()
	if err != nil {
		return nil, err
	}
	slots := map[uint32]bool{}
	for id := ebpf.ProgramID(0); ; {
		id, err = ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return slots, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list programs: %w", err)
		}
		slot, ours, err := guardOf(id, shared)
		if err != nil {
			return nil, fmt.Errorf("query program %d: %w", id, err)
		}
		if ours {
			slots[slot] = true
		}
	}
}

// sharedIDs are the numbers of the maps that all programs share. After a change of their layout older programs
// still share those that have kept it.
func (k *Kernel) sharedIDs() (map[ebpf.MapID]bool, error) {
	ids := map[ebpf.MapID]bool{}
	for name, m := range k.maps.shared() {
		info, err := m.Info()
		if err != nil {
			return nil, fmt.Errorf("query map %s: %w", name, err)
		}
		if id, ok := info.ID(); ok {
			ids[id] = true
		}
	}
	return ids, nil
}

// guardOf tells whose guard a program is, if it is one and uses our maps. A program that has gone is nobody's.
func guardOf(id ebpf.ProgramID, shared map[ebpf.MapID]bool) (slot uint32, ours bool, err error) {
	program, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return 0, false, err
	}
	number, ok := strings.CutPrefix(info.Name, guardPrefix)
	if !ok {
		return 0, false, nil
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0, false, nil // somebody else's
	}
	used, _ := info.MapIDs()
	for _, m := range used {
		if shared[m] {
			return uint32(n), true, nil
		}
	}
	return 0, false, nil
}
