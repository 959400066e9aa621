// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/enforce"
)

// refreshGuards replaces the shared programs of an earlier process by this version's. It also loads those
// that used slots need. All guarded interfaces run them from then on.
func (t *tables) refreshGuards(used []uint32) error {
	needed := map[bool]bool{} // by whether the interface is a VF
	for _, slot := range used {
		s, err := t.slot(slot)
		if err != nil {
			return err
		}
		needed[s.Flags&slotVerify != 0] = true
	}
	for _, verify := range []bool{false, true} {
		loaded, err := t.sharedGuards(verify)
		if err == nil && (needed[verify] || loaded > 0) {
			err = t.loadGuards(verify)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// PrepareGuards loads the programs that the guards of all pods share, except those of VFs, so that a start
// fails if the kernel refuses them. Otherwise they are loaded for the first pod.
func (k *Kernel) PrepareGuards() error { return k.needGuards(false) }

// needGuards loads the shared programs of one kind of interfaces if any is missing. It takes 50 ms.
func (t *tables) needGuards(verify bool) error {
	t.loading.Lock()
	defer t.loading.Unlock()
	loaded, err := t.sharedGuards(verify)
	if err != nil || loaded == len(attach.Directions) {
		return err
	}
	return t.loadGuards(verify)
}

// sharedGuards returns how many shared programs of one kind of interfaces are loaded.
func (t *tables) sharedGuards(verify bool) (loaded int, err error) {
	for _, d := range attach.Directions {
		var id ebpf.ProgramID
		switch err := t.shared[guardMapGuards].Lookup(sharedProgram(d.Name, verify), &id); {
		case err == nil:
			loaded++
		case !errors.Is(err, ebpf.ErrKeyNotExist):
			return 0, fmt.Errorf("look for the shared %s guard: %w", d.Name, err)
		}
	}
	return loaded, nil
}

// loadGuards loads the programs that all pods share. It parses the object each time, because a parsed one
// would keep memory.
func (t *tables) loadGuards(verify bool) error {
	guard, err := loadGuard()
	if err != nil {
		return err
	}
	programs, err := attach.Code{
		Spec: guard, Shared: t.shared,
		Constants: map[string]any{guardVarVerify: verify, guardVarHostLinkClass: attach.HostLinkClass},
		Programs:  map[string]string{"ingress": guardProgGuardIngress, "egress": guardProgGuardEgress},
		Called:    "guard",
	}.Load()
	if err != nil {
		return err
	}
	defer programs.Close()
	for direction, program := range programs {
		if err := t.shared[guardMapGuards].Put(sharedProgram(direction, verify), program); err != nil {
			return fmt.Errorf("share the %s guard: %w", direction, err)
		}
	}
	return nil
}

// unloadGuards takes the shared programs away.
func (t *tables) unloadGuards() error {
	for _, d := range attach.Directions {
		for _, verify := range []bool{false, true} {
			if err := deleteEntry(t.shared[guardMapGuards], sharedProgram(d.Name, verify)); err != nil {
				return fmt.Errorf("unload the %s guard: %w", d.Name, err)
			}
		}
	}
	return nil
}

// sharedProgram returns the key of a program in the map of guard.c.
func sharedProgram(direction string, verify bool) uint32 {
	key := uint32(guardGuardProgramGUARDS)
	if verify {
		key = uint32(guardGuardProgramGUARDS_OF_VF)
	}
	if direction == "egress" {
		return key + uint32(WhereGuardEgress)
	}
	return key + uint32(WhereGuardIngress)
}

// loadEntry loads the programs of one pod interface.
func (t *tables) loadEntry(slot uint32, verify bool) (attach.Programs, error) {
	if err := t.needGuards(verify); err != nil {
		return nil, err
	}
	p := attach.Programs{}
	for _, d := range attach.Directions {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: enforce.ProgramName(slot), Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
			Instructions: t.entry(slot, sharedProgram(d.Name, verify)),
		})
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("load the %s program of slot %d: %w", d.Name, slot, err)
		}
		p[d.Name] = program
	}
	return p, nil
}

// cbOffset is the offset of cb[0] in struct __sk_buff (linux/bpf.h).
const cbOffset = 48

// entry returns a program that runs a shared program with its slot. The interface is mute if the shared
// program is missing. It is not if the slot is free, since Fenceline was then removed from the node. The
// program is not in C: an object with constants takes several times as long to load (1.4 ms for both
// directions).
func (t *tables) entry(slot, shared uint32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(slot)),
		asm.StoreMem(asm.R1, cbOffset, asm.R2, asm.Word),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R2, t.shared[guardMapGuards].FD()),
		asm.Mov.Imm(asm.R3, int32(shared)),
		asm.FnTailCall.Call(),

		asm.LoadMapPtr(asm.R1, t.maps.Slots.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R0, int16(unsafe.Offsetof(observerSlot{}.Status)), asm.Word),
		asm.JNE.Imm(asm.R1, int32(slotFree), "drop"),
		asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_UNSPEC)),
		asm.Return(),
		asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_SHOT)).WithSymbol("drop"),
		asm.Return(),
	}
}
