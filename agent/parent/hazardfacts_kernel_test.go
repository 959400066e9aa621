// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package parent

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/network"
)

// The kernel of a developer's machine may lack 802.1Q, so another interface takes the place of a VLAN
// subinterface of p0.
func TestAnXDPProgramOfTheParentOrBelowItIsSeen(t *testing.T) {
	ns := network.New(t, "hazard")
	check.OK(t, ns.AddBridge("p0"))
	check.OK(t, ns.AddBridge("p0.100"))
	device, vlan := check.Value(ns.Index("p0"))(t), check.Value(ns.Index("p0.100"))(t)
	others := func(int) ([]string, error) { return []string{"x"}, nil }
	free := func(int) error { return nil }
	rewrites := func([]netlink.Link) error { return nil }
	look := func(way ...int) (f HazardFacts) {
		t.Helper()
		check.OK(t, ns.Do(func() (err error) {
			f, err = LookForHazards(way[0], others, free, read(way), rewrites)
			return err
		}))
		return f
	}
	check.Same(t, look(device), HazardFacts{Others: []string{"x"}}, "without a program")
	program := check.Value(ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	}))(t)
	defer program.Close()
	check.OK(t, ns.Do(func() error {
		link, err := netlink.LinkByIndex(device)
		if err != nil {
			return err
		}
		return netlink.LinkSetXdpFd(link, program.FD())
	}))
	id, _ := check.Value(program.Info())(t).ID()
	want := HazardFacts{XDP: []string{fmt.Sprintf("%d on p0", id)}, Others: []string{"x"}}
	check.Same(t, look(device), want, "with an XDP program")
	check.Same(t, look(vlan, device), want, "with an XDP program below the parent")
	check.OK(t, ns.DeleteLink("p0"))
	check.Same(t, look(device), HazardFacts{}, "a parent that is gone")
	check.OK(t, ns.Do(func() error {
		f, err := LookForHazards(vlan, others, free, read([]int{vlan, device}), rewrites)
		check.Same(t, f.Unread, HazardKinds(), "a device below the parent cannot be read: unread")
		check.That(t, err != nil, "a device below the parent cannot be read: no error")
		return nil
	}))
}

// read returns a walk along some interfaces, which ends at the first that is gone.
func read(indices []int) func(int) ([]netlink.Link, error) {
	return func(int) (way []netlink.Link, err error) {
		for _, index := range indices {
			link, err := netlink.LinkByIndex(index)
			if err != nil {
				return way, err
			}
			way = append(way, link)
		}
		return way, nil
	}
}
