// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/test/check"
)

func TestOpenWantsABPFFS(t *testing.T) {
	_, err := Open(Options{Dir: t.TempDir()})
	check.That(t, errors.Is(err, ErrNotBPFFS), "got %v, want %v", err, ErrNotBPFFS)
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
			"attach": attachGuard(k, Guard{Slot: slot, Interface: "lo"}),
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
			change(other.observer.Maps[observerMapLeases])
			for _, m := range check.Value(openMaps(pinDir(dir).maps(), other.maps()))(t) {
				check.OK(t, m.Close())
			}
			_, err := Open(Options{Dir: dir})
			check.Is(t, err, ErrLayout, "got")
		})
	}
}

func TestAGuardPreparedAheadIsTheOneThatIsStaged(t *testing.T) {
	r := newRig(t)
	on := func(g Guard) Guard { g.NetNS, g.Interface = r.sibling.path, "eth0"; return g }
	for name, tc := range map[string]struct {
		prepared, wanted Guard
		used             bool
	}{
		"as prepared":       {Guard{Slot: 2, Segment: r.parent}, Guard{Slot: 2, Segment: r.parent}, true},
		"another parent":    {Guard{Slot: 2, Segment: 1}, Guard{Slot: 2, Segment: r.parent}, false},
		"other options":     {Guard{Slot: 2, Segment: r.parent}, Guard{Slot: 2, Segment: r.parent, Verify: true}, false},
		"out of order":      {Guard{Slot: 3, Segment: r.parent}, Guard{Slot: 2, Segment: r.parent}, false},
		"an unnamed option": {Guard{Slot: 2, Segment: r.parent, Verify: true}, Guard{Slot: 2, Segment: r.parent}, false},
	} {
		t.Run(name, func(t *testing.T) {
			check.OK(t, r.PrepareGuard(tc.prepared))
			check.OK(t, r.PrepareGuard(tc.prepared)) // twice is fine
			prepared := programID(t, r.stock[tc.prepared.Slot].programs["egress"])
			check.OK(t, r.StageGuard(on(tc.wanted)))
			staged := programID(t, r.stages.staged[2].programs["egress"])
			equal(t, "prepared programs are used", staged == prepared, tc.used)
			check.OK(t, r.DetachGuard(2))
		})
	}
	check.OK(t, r.PrepareGuard(Guard{Slot: 2, Segment: r.parent}))
	r.DropGuard(2)
	r.DropGuard(2)                                       // twice is fine
	equal(t, "prepared after dropping", len(r.stock), 1) // slot 3, out of order
	check.Is(t, r.PrepareGuard(Guard{Slot: MaxSlot + 1}), ErrSlot, "got")
	check.OK(t, r.PrepareGuard(Guard{Slot: 2, Segment: r.parent}))
	check.OK(t, r.Close())
	equal(t, "prepared after closing", len(r.stock), 0)
}

func programID(t *testing.T, p *ebpf.Program) ebpf.ProgramID {
	t.Helper()
	info := check.Value(p.Info())(t)
	id, ok := info.ID()
	equal(t, "has an ID", ok, true)
	return id
}
