// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/attach"
)

// A process may end after it has marked a slot as used and before it has pinned links: then the
// slot has filters at most, and no record of its device. A slot may also be killed before its guard
// is attached or after it was swept. If no pin and no process records a slot, ask the kernel
// whether its program is still loaded: an attached program stays loaded.

// inherit marks the slots that an earlier process has left in use as unrecorded, and reads their
// sources.
func (gs *guards) inherit() error {
	gs.tables.mu.Lock()
	defer gs.tables.mu.Unlock()
	var used []uint32
	for slot := uint32(1); slot < gs.tables.maps.Slots.MaxEntries(); slot++ {
		s, err := gs.tables.slot(slot)
		if err != nil {
			return err
		}
		if s.Status != slotFree {
			gs.stages.unrecorded[slot] = true
			used = append(used, slot)
		}
	}
	return gs.tables.inheritSources(used)
}

// findStage returns the stage that an earlier process has left, with programs if links are missing.
func (gs *guards) findStage(g Guard, record observerSlot) (stagedGuard, error) {
	dev, err := attach.OpenDevice(g.NetNS, g.Interface)
	if err != nil {
		return stagedGuard{}, err
	}
	defer dev.Close()
	if dev.NetNS != record.Netns {
		return stagedGuard{}, fmt.Errorf("%w: %s is not the guard's network namespace any more", ErrNoDevice, g.NetNS)
	}
	s := stagedGuard{Guard: g, netns: dev.NetNS, index: dev.Index}
	attached, err := gs.dir.guard(g.Slot).Attached()
	if err == nil && !attached && !gs.noTCX.Load() {
		s.programs, err = gs.loadGuardPair(g.Slot, record)
	}
	return s, err
}

// The names of programs in the kernel, at most 15 bytes. Both programs of a guard have the same
// name, with the slot.
const (
	guardPrefix  = "guard_"
	observerName = "observer"
)

func guardName(slot uint32) string { return guardPrefix + strconv.FormatUint(uint64(slot), 10) }

// loadedGuards returns the slots whose programs are loaded, by this process or another.
func (gs *guards) loadedGuards() (map[uint32]bool, error) {
	shared, err := gs.sharedIDs()
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

// sharedIDs returns the IDs of the maps that all programs share. After a change of layouts, older
// programs still share the unchanged maps.
func (gs *guards) sharedIDs() (map[ebpf.MapID]bool, error) {
	ids := map[ebpf.MapID]bool{}
	for name, m := range gs.tables.maps.shared() {
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

// guardOf returns the slot of a guard's program; ours is false for other programs, for guards that
// do not use our maps, and for a program that is no longer loaded.
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
		return 0, false, nil // not a guard of ours
	}
	used, _ := info.MapIDs()
	for _, m := range used {
		if shared[m] {
			return uint32(n), true, nil
		}
	}
	return 0, false, nil
}
