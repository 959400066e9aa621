// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"

	"github.com/fenceline/fenceline/bpf/attach"
)

// mapsOfCode returns the maps that all programs of this version share.
func mapsOfCode() (map[string]*ebpf.MapSpec, error) {
	observer, err := loadObserver()
	if err != nil {
		return nil, err
	}
	sockets, err := loadSockets()
	if err != nil {
		return nil, err
	}
	shared := observer.Maps // it uses all maps but those of the guards and of sockets
	delete(shared, rodata)
	delete(shared, bss)
	for _, name := range []string{socketsMapSocketGuards, socketsMapGuardedNetns} {
		shared[name] = sockets.Maps[name]
	}
	return shared, addGuardMap(shared)
}

// The maps of the constants and variables. Each load has its own.
const rodata, bss = ".rodata", ".bss"

// observerOf loads the observer of one parent, in its network namespace. It parses the object each time,
// because a parsed one would keep 0.7 MB. offsets are those of socketOffsets.
func observerOf(parent uint32, offsets map[string]any, shared map[string]*ebpf.Map) (attach.Programs, error) {
	observer, err := loadObserver()
	if err != nil {
		return attach.Programs{}, err
	}
	netns, err := attach.NetNSInode()
	if err != nil {
		return attach.Programs{}, fmt.Errorf("look up the network namespace of the node: %w", err)
	}
	constants := map[string]any{"segment": parent, "node_netns": uint32(netns)}
	maps.Copy(constants, offsets)
	return attach.Code{
		Spec: observer, Shared: shared,
		Constants: constants,
		Programs:  map[string]string{"ingress": observerProgObserverIngress, "egress": observerProgObserverEgress},
		Called:    "observer",
	}.Load()
}

// socketOffsets returns the constants of netns.h for programs of a type. It returns an error if the kernel has
// no BTF, or lets no program read its memory (lockdown=confidentiality). Such a program is not even loaded.
func socketOffsets(of ebpf.ProgramType) (map[string]any, error) {
	if err := features.HaveProgramHelper(of, asm.FnProbeReadKernel); err != nil {
		return nil, fmt.Errorf("read the kernel's memory in a program: %w", err)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's types: %w", err)
	}
	offsets := map[string]any{}
	for constant, at := range map[string][]string{
		"sock_net": {"sock_common", "skc_net"}, "net_inum": {"net", "ns", "inum"},
	} {
		var s *btf.Struct
		if err := kernel.TypeByName(at[0], &s); err != nil {
			return nil, fmt.Errorf("look up the kernel's struct %s: %w", at[0], err)
		}
		var offset btf.Bits
		for _, name := range at[1:] {
			i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == name })
			if i < 0 {
				return nil, fmt.Errorf("the kernel's struct %s has no %s", at[0], name)
			}
			offset += s.Members[i].Offset
			if inner, ok := btf.UnderlyingType(s.Members[i].Type).(*btf.Struct); ok {
				s = inner
			}
		}
		offsets[constant] = offset.Bytes()
	}
	return offsets, nil
}
