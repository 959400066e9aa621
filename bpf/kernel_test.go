// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/bpf/pins"
	"github.com/fenceline/fenceline/test/check"
)

func TestOpenWantsABPFFS(t *testing.T) {
	_, err := Open(Options{Dir: t.TempDir()})
	check.That(t, errors.Is(err, pins.ErrNotBPFFS), "got %v, want %v", err, pins.ErrNotBPFFS)
}

func TestEverythingIsThereAfterAReopen(t *testing.T) {
	dir := filepath.Join(bpffs(t), "fenceline")
	first := check.Value(Open(Options{Dir: dir}))(t)
	check.OK(t, first.InstallLease(key(addr4), Lease{Token: 7, Network: network, Slot: 3, MAC: podMAC}))
	check.OK(t, first.KillSlot(3))
	check.OK(t, first.Close())

	k := openKernel(t, dir)
	l, ok, err := k.Lease(key(addr4))
	check.OK(t, err)
	equal(t, "lease", ok, true)
	equal(t, "token", l.Token, 7)
	dead := check.Value(k.SlotDead(3))(t)
	equal(t, "slot dead", dead, true)
}

func TestRemoveLeavesNothing(t *testing.T) {
	dir := filepath.Join(bpffs(t), "fenceline")
	k := check.Value(Open(Options{Dir: dir}))(t)
	check.OK(t, k.Remove())
	entries := check.Value(os.ReadDir(dir))(t)
	equal(t, "entries", len(entries), 0)
}

func TestSlotsOutOfRangeAreRefused(t *testing.T) {
	k := newKernel(t)
	for _, slot := range []uint32{0, MaxSlot + 1} {
		for name, err := range map[string]error{
			"kill":   k.KillSlot(slot),
			"detach": k.DetachGuard(slot),
			"attach": attachGuard(k, enforce.Guard{Slot: slot, Interface: "lo"}),
		} {
			check.Is(t, err, ErrSlot, "%s slot %d: got", name, slot)
		}
	}
}

func TestAMapOfAnotherLayoutIsAClearError(t *testing.T) {
	for name, change := range map[string]func(leases *ebpf.MapSpec){
		"smaller":       func(leases *ebpf.MapSpec) { leases.MaxEntries = 64 },
		"longer values": func(leases *ebpf.MapSpec) { leases.ValueSize, leases.Value = leases.ValueSize+8, nil },
		"other keys":    func(leases *ebpf.MapSpec) { leases.KeySize, leases.Key = leases.KeySize+4, nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := bpffs(t)
			other := check.Value(loadCode())(t)
			change(other.maps[observerMapLeases])
			for _, m := range check.Value(pins.Dir(dir).OpenMaps(other.maps))(t) {
				check.OK(t, m.Close())
			}
			_, err := Open(Options{Dir: dir})
			check.Is(t, err, pins.ErrLayout, "got")
		})
	}
}

func TestAGuardPreparedAheadIsTheOneThatIsStaged(t *testing.T) {
	r := newRig(t)
	ours, _ := check.Value(r.maps.Slots.Info())(t).ID()
	on := func(g enforce.Guard) enforce.Guard { g.NetNS, g.Interface = r.sibling.path, "eth0"; return g }
	for name, tc := range map[string]struct {
		prepared, wanted enforce.Guard
		used             bool
	}{
		"as prepared":       {enforce.Guard{Slot: 2, Segment: r.parent}, enforce.Guard{Slot: 2, Segment: r.parent}, true},
		"another parent":    {enforce.Guard{Slot: 2, Segment: 1}, enforce.Guard{Slot: 2, Segment: r.parent}, false},
		"other options":     {enforce.Guard{Slot: 2, Segment: r.parent}, enforce.Guard{Slot: 2, Segment: r.parent, Verify: true}, false},
		"out of order":      {enforce.Guard{Slot: 3, Segment: r.parent}, enforce.Guard{Slot: 2, Segment: r.parent}, false},
		"an unnamed option": {enforce.Guard{Slot: 2, Segment: r.parent, Verify: true}, enforce.Guard{Slot: 2, Segment: r.parent}, false},
	} {
		t.Run(name, func(t *testing.T) {
			check.OK(t, r.PrepareGuard(tc.prepared))
			check.OK(t, r.PrepareGuard(tc.prepared)) // twice is fine
			prepared := loaded(t, ours, tc.prepared.Slot)
			check.OK(t, r.StageGuard(on(tc.wanted)))
			equal(t, "prepared programs are used", slices.Contains(prepared, r.stagedProgram()), tc.used)
			check.OK(t, r.DetachGuard(2))
		})
	}
	check.OK(t, r.PrepareGuard(enforce.Guard{Slot: 2, Segment: r.parent}))
	r.DropGuard(2)
	r.DropGuard(2) // twice is fine
	unloaded := func(slot uint32) func() bool { return func() bool { return len(loaded(t, ours, slot)) == 0 } }
	check.Becomes(t, time.Minute, "dropped", unloaded(2))
	equal(t, "prepared after dropping", len(loaded(t, ours, 3)), 2) // slot 3, out of order
	check.Is(t, r.PrepareGuard(enforce.Guard{Slot: MaxSlot + 1}), ErrSlot, "got")
	check.OK(t, r.PrepareGuard(enforce.Guard{Slot: 2, Segment: r.parent}))
	check.OK(t, r.Close())
	check.Becomes(t, time.Minute, "closed", func() bool { return unloaded(2)() && unloaded(3)() })
}

// loaded returns the loaded programs of a slot's guard that use a map.
func loaded(t *testing.T, ours ebpf.MapID, slot uint32) (ids []ebpf.ProgramID) {
	t.Helper()
	for id := ebpf.ProgramID(0); ; {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, os.ErrNotExist) {
			return ids
		}
		check.OK(t, err)
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		check.OK(t, err)
		info := check.Value(p.Info())(t)
		check.OK(t, p.Close())
		if used, _ := info.MapIDs(); info.Name == enforce.ProgramName(slot) && slices.Contains(used, ours) {
			ids = append(ids, id)
		}
	}
}

// stagedProgram returns the program in the filter of the sibling's egress.
func (r *rig) stagedProgram() ebpf.ProgramID {
	r.t.Helper()
	dev := check.Value(attach.OpenDevice(r.sibling.path, "eth0"))(r.t)
	defer dev.Close()
	filters := check.Value(dev.Filters(attach.Directions[0]))(r.t)
	equal(r.t, "filters", len(filters), 1)
	return ebpf.ProgramID(filters[0].(*netlink.BpfFilter).Id)
}
