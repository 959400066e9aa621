// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// markName and markHandle are the name and the handle of the filter on the pod's end.
const (
	markName   = "fenceline-mark"
	markHandle = 1
)

// markOffset is the offset of mark in struct __sk_buff (include/uapi/linux/bpf.h).
const markOffset = 8

// putMark marks all frames that come over the host link, so that their replies can be told from
// other frames. It must be at the pod's end: the kernel clears the mark of a frame that enters another
// network namespace (skb_scrub_packet).
func putMark(links *netlink.Handle, link netlink.Link, mark uint32) error {
	program, err := loadMark(mark)
	if err != nil {
		return err
	}
	defer program.Close()
	err = links.QdiscReplace(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err != nil {
		return fmt.Errorf("add clsact to %s: %w", link.Attrs().Name, err)
	}
	err = links.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: markHandle,
			Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		Fd: program.FD(), Name: markName, DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("mark the frames that come over %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// hasMark reports whether the filter is there and runs the program that sets the mark.
func hasMark(links *netlink.Handle, link netlink.Link, mark uint32) (bool, error) {
	filters, err := links.FilterList(link, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return false, fmt.Errorf("list the filters of %s: %w", link.Attrs().Name, err)
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == markName {
			return runs(b, mark)
		}
	}
	return false, nil
}

// runs reports whether a filter runs that program. The kernel gives equal programs one tag.
func runs(filter *netlink.BpfFilter, mark uint32) (bool, error) {
	program, err := loadMark(mark)
	if err != nil {
		return false, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return false, fmt.Errorf("ask for the tag of the program that marks frames of the host link: %w", err)
	}
	return filter.DirectAction && filter.Tag == info.Tag, nil
}

func loadMark(mark uint32) (*ebpf.Program, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "host_link_mark", Type: ebpf.SchedCLS, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm32(asm.R2, int32(mark)),
			asm.StoreMem(asm.R1, markOffset, asm.R2, asm.Word),
			asm.Mov.Imm(asm.R0, unix.BPF_OK),
			asm.Return(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("load the program that marks frames of the host link: %w", err)
	}
	return program, nil
}
