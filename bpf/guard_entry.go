// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
)

// load loads the programs of one pod interface, after the shared ones.
func (s *sharedGuards) load(slot uint32, verify bool) (attach.Programs, error) {
	if err := s.prepare(verify); err != nil {
		return nil, err
	}
	p := attach.Programs{}
	for _, d := range attach.Directions {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: programName(slot), Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
			Instructions: s.entry(slot, guardKey(d.Name, verify)),
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
func (s *sharedGuards) entry(slot, shared uint32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(slot)),
		asm.StoreMem(asm.R1, cbOffset, asm.R2, asm.Word),
		asm.StoreMem(asm.RFP, -4, asm.R2, asm.Word),
		asm.LoadMapPtr(asm.R2, s.programs.FD()),
		asm.Mov.Imm(asm.R3, int32(shared)),
		asm.FnTailCall.Call(),

		asm.LoadMapPtr(asm.R1, s.maps[observerMapSlots].FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.LoadMem(asm.R1, asm.R0, int16(unsafe.Offsetof(observerSlot{}.Status)), asm.Word),
		asm.JNE.Imm(asm.R1, int32(observerSlotStatusSLOT_FREE), "drop"),
		asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_UNSPEC)),
		asm.Return(),
		asm.Mov.Imm(asm.R0, int32(netlink.TC_ACT_SHOT)).WithSymbol("drop"),
		asm.Return(),
	}
}
