// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package hazard

import (
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

func TestAnXDPProgramOfTheParentIsSeen(t *testing.T) {
	ns := check.Value(network.Create(fmt.Sprintf("flt-%d-hazard", os.Getpid())))(t)
	t.Cleanup(func() { check.OK(t, ns.Delete()) })
	check.OK(t, ns.AddBridge("p0"))
	parent := check.Value(ns.Index("p0"))(t)
	look := func() (f Facts) {
		t.Helper()
		check.OK(t, ns.Do(func() (err error) {
			f, err = Look(parent, func(int) ([]string, error) { return []string{"x"}, nil }, func(int) error { return nil })
			return err
		}))
		return f
	}
	check.Same(t, look(), Facts{Others: []string{"x"}}, "without a program")
	program := check.Value(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	}))(t)
	defer program.Close()
	check.OK(t, ns.Do(func() error {
		link, err := netlink.LinkByIndex(parent)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFd(link, program.FD())
	}))
	got := look()
	check.That(t, got.XDP != 0 && !got.Offload, "with an XDP program: %+v", got)
	check.OK(t, ns.DeleteLink("p0"))
	check.Same(t, look(), Facts{}, "a parent that is gone")
}
