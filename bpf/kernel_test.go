// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/bpf/guard"
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
	equal(t, "slot dead", check.Value(k.SlotDead(3))(t), true)
}

func TestRemoveLeavesNothing(t *testing.T) {
	dir := filepath.Join(bpffs(t), "fenceline")
	k := check.Value(Open(Options{Dir: dir}))(t)
	check.OK(t, k.Remove())
	equal(t, "entries", len(check.Value(os.ReadDir(dir))(t)), 0)
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
			other := check.Value(mapsOfCode())(t)
			change(other[observerMapLeases])
			for _, m := range check.Value(pins.Dir(dir).OpenMaps(other))(t) {
				check.OK(t, m.Close())
			}
			check.Is(t, check.Err(Open(Options{Dir: dir})), pins.ErrLayout, "got")
		})
	}
}

// The programs of an interface outlive the agent, and run the shared ones of the agent that started last.
func TestAPodIsMuteWithoutTheProgramsThatAllShare(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	verdicts := func() [2]uint32 {
		sends, _ := b.run(WhereGuardEgress, udpFrom(addr4))
		hears, _ := b.run(WhereGuardIngress, udpTo(addr4, remoteMAC, far4))
		return [...]uint32{sends, hears}
	}
	passes, mute := [...]uint32{pass, pass}, [...]uint32{drop, drop}
	equal(t, "guarded", verdicts(), passes)
	check.OK(t, b.guards.Unload())
	equal(t, "without the programs", verdicts(), mute)
	k := openKernel(t, string(b.dir))
	equal(t, "with the next agent", verdicts(), passes)
	check.OK(t, k.Remove())
	equal(t, "after an uninstallation", verdicts(), passes)
}

func TestSharedProgramsAreLoadedForTheFirstInterfaceOfTheirKind(t *testing.T) {
	dir := bpffs(t)
	k := openKernel(t, dir)
	programs := func() *ebpf.Map { return k.shared["guards"] }
	loaded := func() [2]int {
		return [...]int{check.Value(k.guards.Loaded(false))(t), check.Value(k.guards.Loaded(true))(t)}
	}
	equal(t, "after the first start", loaded(), [...]int{0, 0})
	check.OK(t, k.PrepareGuards())
	equal(t, "pods and VFs", loaded(), [...]int{2, 0})
	check.OK(t, programs().Delete(guard.Key("egress", false)))
	check.OK(t, k.PrepareGuards())
	equal(t, "after half a load", loaded(), [...]int{2, 0})

	id := func() (id ebpf.ProgramID) {
		check.OK(t, programs().Lookup(guard.Key("egress", false), &id))
		return id
	}
	old := id()
	check.OK(t, k.Close())
	k = openKernel(t, dir)
	equal(t, "after the next start", loaded(), [...]int{2, 0})
	check.That(t, id() != old, "the next agent runs the program %d of the last one", old)
}
