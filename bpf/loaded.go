// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
)

// A process may end after it has marked a slot as used and before it has pinned links: then the
// slot has filters at most, and no record of its device. A slot may also be killed before its guard
// is attached or after it was swept. If no pin and no process records a slot, ask the kernel
// whether its program is still loaded: an attached program stays loaded.

// guardPrefix begins the names of guards in the kernel.
const guardPrefix = "guard_"

// programName is the name of both programs of a slot's guard in the kernel, at most 15 bytes.
func programName(slot uint32) string { return guardPrefix + strconv.FormatUint(uint64(slot), 10) }

// loadedGuards returns the slots whose programs are loaded, by this process or another. shared are the maps
// that all programs share.
func loadedGuards(shared map[string]*ebpf.Map) (map[uint32]bool, error) {
	ids, err := mapIDs(shared)
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
		if err := noteGuard(id, ids, slots); err != nil {
			return nil, err
		}
	}
}

// guardsOn returns the slots with tcx links on a device in the calling thread's network namespace.
func guardsOn(index int, shared map[string]*ebpf.Map) (map[uint32]bool, error) {
	ids, err := mapIDs(shared)
	if err != nil {
		return nil, err
	}
	slots := map[uint32]bool{}
	for _, d := range attach.Directions {
		chain, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: d.Hook})
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
			return nil, nil // no tcx, or no such device any more
		}
		if err != nil {
			return nil, fmt.Errorf("query %s chain of ifindex %d: %w", d.Name, index, err)
		}
		for _, p := range chain.Programs {
			if err := noteGuard(p.ID, ids, slots); err != nil {
				return nil, err
			}
		}
	}
	return slots, nil
}

// mapIDs returns the IDs of maps. After a change of layouts, older programs still share the unchanged ones.
func mapIDs(of map[string]*ebpf.Map) (map[ebpf.MapID]bool, error) {
	ids := map[ebpf.MapID]bool{}
	for name, m := range of {
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

// noteGuard adds the slot of a guard's program to slots. It ignores other programs, guards that do not
// use our maps, and a program that is no longer loaded.
func noteGuard(id ebpf.ProgramID, shared map[ebpf.MapID]bool, slots map[uint32]bool) error {
	program, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("query program %d: %w", id, err)
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return fmt.Errorf("query program %d: %w", id, err)
	}
	number, isGuard := strings.CutPrefix(info.Name, guardPrefix)
	slot, err := strconv.ParseUint(number, 10, 32)
	used, _ := info.MapIDs()
	if isGuard && err == nil && slices.ContainsFunc(used, func(m ebpf.MapID) bool { return shared[m] }) {
		slots[uint32(slot)] = true
	}
	return nil
}
