// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/mapset"
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

// older is this version's code with maps as another version had them.
func older(t *testing.T, change func(maps map[string]*ebpf.MapSpec)) *code {
	t.Helper()
	c := check.Value(loadCode())(t)
	change(c.guard.Maps)
	change(c.observer.Maps)
	return c
}

func TestMapsOfAnotherVersionAreCarriedOver(t *testing.T) {
	for name, change := range map[string]func(maps map[string]*ebpf.MapSpec){
		"smaller maps": func(maps map[string]*ebpf.MapSpec) {
			for _, name := range []string{observerMapLeases, observerMapStates, observerMapSlots, observerMapParents} {
				maps[name].MaxEntries = 64
			}
		},
		"longer values": func(maps map[string]*ebpf.MapSpec) {
			for _, name := range []string{observerMapLeases, observerMapStates, observerMapSlots} {
				maps[name].ValueSize += 8
				maps[name].Value = nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := bpffs(t)
			set := check.Value(mapset.Open(pinDir(dir).maps(), older(t, change).maps()))(t)
			before := typed(set.Current)
			pad := func(b []byte, m *ebpf.Map) []byte { return append(b, make([]byte, int(m.ValueSize())-len(b))...) }
			put := func(m *ebpf.Map, key, value any) {
				t.Helper()
				raw := marshal(t, value)
				check.OK(t, m.Put(key, pad(raw, m)))
			}
			put(before.Leases, key(addr4).layout(), Lease{Token: 100, Network: network, Slot: 1, MAC: podMAC}.layout())
			put(before.States, key(addr4).layout(), observerState{Max: 200, Acked: 50})
			put(before.Slots, uint32(3), observerSlot{Status: slotDead, Segment: 9})
			set.Close()

			k := openKernel(t, dir)
			fenced := check.Value(k.Fenced(key(addr4)))(t)
			equal(t, "fenced", fenced, true)
			s, _, err := k.State(key(addr4))
			check.OK(t, err)
			equal(t, "acked", s.AckedToken, 50)
			dead := check.Value(k.SlotDead(3))(t)
			equal(t, "slot dead", dead, true)
			entries := check.Value(os.ReadDir(filepath.Join(dir, mapsDir)))(t)
			equal(t, "pinned maps", len(entries), len(k.code.maps()))
			check.OK(t, k.InstallLease(key(other4), Lease{Token: 1, Slot: 2, MAC: otherMAC}))
		})
	}
}

// upgrading stands between the two halves of an upgrade: the new maps are filled, the old programs still at work.
func upgrading(t *testing.T, dir string) *mapset.Set {
	t.Helper()
	before, err := open(Options{Dir: dir}, older(t, func(maps map[string]*ebpf.MapSpec) {
		maps[observerMapStates].MaxEntries = 64
	}))
	check.OK(t, err)
	check.OK(t, before.InstallLease(key(addr4), Lease{Token: 100, Network: network, Slot: 1, MAC: podMAC}))
	check.OK(t, before.Close())
	c := check.Value(loadCode())(t)
	set := check.Value(mapset.Open(pinDir(dir).maps(), c.maps()))(t)
	check.OK(t, set.Carry(forgotten))
	check.OK(t, set.Old[observerMapStates].Put(key(addr4).layout(), observerState{Max: 300})) // the kernel's doing
	return set
}

func TestAFenceDuringAnUpgradeIsNotLost(t *testing.T) {
	dir := bpffs(t)
	set := upgrading(t, dir)
	c := check.Value(loadCode())(t)
	k := assemble(pinDir(dir), c)
	k.maps = typed(set.Current)
	check.OK(t, k.finish(set))
	t.Cleanup(func() { check.OK(t, k.Remove()) })
	fenced := check.Value(k.Fenced(key(addr4)))(t)
	equal(t, "fenced", fenced, true)
}

func TestAnUpgradeCutShortIsTakenUpAgain(t *testing.T) {
	dir := bpffs(t)
	upgrading(t, dir).Close()
	k := openKernel(t, dir)
	fenced := check.Value(k.Fenced(key(addr4)))(t)
	equal(t, "fenced", fenced, true)
	entries := check.Value(os.ReadDir(filepath.Join(dir, mapsDir)))(t)
	equal(t, "pinned maps", len(entries), len(k.code.maps()))
}

func TestMaximaRaisedDuringAnUpgradeAreMergedByMaximum(t *testing.T) {
	c := check.Value(loadCode())(t)
	dir := bpffs(t)
	k := openKernel(t, dir)
	old, err := ebpf.NewMap(c.observer.Maps[observerMapStates])
	check.OK(t, err)
	defer old.Close()
	for addr, tokens := range map[Key][3]uint64{
		key(addr4): {300, 200, 300}, key(other4): {200, 300, 300}, key(far4): {0, 0, 0},
	} {
		check.OK(t, old.Put(addr.layout(), observerState{Max: tokens[0], Acked: tokens[1]}))
		check.OK(t, k.maps.States.Put(addr.layout(), observerState{Max: tokens[1], Acked: tokens[0]}))
		check.OK(t, k.mergeStates(old))
		s, _, err := k.State(addr)
		check.OK(t, err)
		equal(t, "max of "+addr.String(), s.MaxToken, tokens[2])
		equal(t, "acked of "+addr.String(), s.AckedToken, tokens[2])
	}
}

func TestAChangedKeyIsAClearError(t *testing.T) {
	dir := bpffs(t)
	k := check.Value(Open(Options{Dir: dir}))(t)
	check.OK(t, k.Close())
	path := filepath.Join(dir, mapsDir, observerMapLeases)
	check.OK(t, os.Remove(path))
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 16, ValueSize: 32, MaxEntries: 8})
	check.OK(t, err)
	defer m.Close()
	check.OK(t, m.Put(make([]byte, 16), make([]byte, 32)))
	check.OK(t, m.Pin(path))
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrSchema) {
		t.Errorf("got %v, want %v", err, ErrSchema)
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
