//go:build kernel && !notcx

package bpf

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
)

func TestAGuardThatCannotBeSweptKeepsNoOther(t *testing.T) {
	r := newRig(t)
	must(t, r.AttachGuard(Guard{Slot: 2, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}))
	foreign := r.Kernel.dir.guard(1).path(directions[0])
	must(t, os.Remove(foreign))
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(os.Remove(foreign), m.Close())) })
	must(t, m.Pin(foreign))
	r.sibling.deleteLink("eth0")
	swept, err := r.SweepGuards()
	if err == nil || !slices.Equal(swept, []uint32{2}) {
		t.Errorf("swept %v, %v", swept, err)
	}
}

// Its device lives, and nobody who knew is left: a mark that is wiped lets it speak for an address that is free.
func TestADeadSlotIsNotSweptAfterAPinThatWasCutShort(t *testing.T) {
	r := stagedRig(t, Options{})
	must(t, r.KillSlot(1))
	must(t, os.MkdirAll(string(r.pins(1)), 0o700)) // where the process ended
	must(t, r.Close())
	var err error
	r.Kernel, err = Open(Options{Dir: r.dir})
	must(t, err)
	swept, err := r.SweepGuards()
	must(t, err)
	if len(swept) > 0 {
		t.Errorf("swept %v", swept)
	}
	dead, err := r.SlotDead(1)
	must(t, err)
	equal(t, "dead", dead, true)
	_, other := r.leaks()
	equal(t, "anything leaks", other, false)

	must(t, r.PinGuard(r.guard()))
	r.pod.deleteLink("eth0")
	swept, err = r.SweepGuards()
	must(t, err)
	if !slices.Equal(swept, []uint32{1}) {
		t.Errorf("swept %v once the device is gone", swept)
	}
}
