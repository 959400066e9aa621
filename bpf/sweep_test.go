// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !notcx

package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/test/check"
	lan "github.com/fenceline/fenceline/test/network"
)

func TestAGuardThatCannotBeSweptKeepsNoOther(t *testing.T) {
	r := newRig(t)
	check.OK(t, attachGuard(r.Kernel, enforce.Guard{Slot: 2, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}))
	foreign := r.Kernel.dir.Guard(1).Path(attach.Directions[0])
	check.OK(t, os.Remove(foreign))
	m := check.Value(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}))(t)
	t.Cleanup(func() { check.OK(t, errors.Join(os.Remove(foreign), m.Close())) })
	check.OK(t, m.Pin(foreign))
	r.sibling.deleteLink("eth0")
	swept, err := r.SweepGuards()
	check.That(t, err != nil && slices.Equal(swept, []uint32{2}), "swept %v, %v", swept, err)
}

// A process ends in the middle of the move to pinned links. Whatever it has left, a mark that is wiped while the
// device lives would let it speak for an address that is free; and a slot is lost that is not swept once it is gone.
func TestASlotWhoseProcessEndedInTheMiddleIsSweptWithItsDevice(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*rig)
	}{
		{"before the directory", func(*rig) {}},
		{"before the first link", func(r *rig) { check.OK(r.t, os.MkdirAll(string(r.pins(1)), 0o700)) }},
		{"before the first link has its name", func(r *rig) {
			r.restage()
			check.OK(r.t, os.Remove(r.pins(1).Path(attach.Directions[1])))
			check.OK(r.t, os.Rename(r.pins(1).Path(attach.Directions[0]), r.pins(1).Path(attach.Directions[0])+attach.NextSuffix))
		}},
		{"before the second link", func(r *rig) {
			r.restage()
			check.OK(r.t, os.Remove(r.pins(1).Path(attach.Directions[1])))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := stagedRig(t, Options{})
			check.OK(t, r.KillSlot(1))
			tc.end(r)
			check.OK(t, r.RemoveLease(r.key))
			r.reopen(Options{})
			check.None(t, check.Value(r.SweepGuards())(t), "swept while the device lives")
			equal(t, "dead", check.Value(r.SlotDead(1))(t), true)
			guarded, other := r.leaks()
			equal(t, "anything leaks", guarded || other, false)

			r.pod.deleteLink("eth0")
			check.List(t, r.sweepsIn(10*time.Second), []uint32{1}, "swept once the device is gone")
			check.None(t, check.Value(r.Kernel.dir.Guards())(t), "pins are left of slots")
			equal(t, "dead once swept", check.Value(r.SlotDead(1))(t), false)
		})
	}
}

// sweepsIn sweeps until something is swept: the kernel lets the programs of filters go in its own time.
func (r *rig) sweepsIn(limit time.Duration) (swept []uint32) {
	r.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); len(swept) == 0 && time.Now().Before(deadline); <-tick.C {
		swept = check.Value(r.SweepGuards())(r.t)
	}
	return swept
}

// A DEL kills whatever slot its entry names, also where nothing guards a device by it: a slot is lost that no sweep sees.
func TestASlotThatIsKilledWithoutAGuardIsSwept(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(*rig)
	}{
		{"its device went, and was swept", func(r *rig) {
			r.pod.deleteLink("eth0")
			swept := check.Value(r.SweepGuards())(r.t)
			check.Must(r.t, slices.Equal(swept, []uint32{1}), "swept %v", swept)
		}},
		{"its device went before the guard came", func(r *rig) {
			check.OK(r.t, r.DetachGuard(1))
			r.pod.deleteLink("eth0")
			err := r.StageGuard(r.guard())
			check.Must(r.t, errors.Is(err, ErrNoDevice), "got %v", err)
		}},
		{"no guard was ever asked for", func(r *rig) { check.OK(r.t, r.DetachGuard(1)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			tc.before(r)
			check.OK(t, r.KillSlot(1))
			check.List(t, r.sweepsIn(2*time.Second), []uint32{1}, "swept")
			equal(t, "dead", check.Value(r.SlotDead(1))(t), false)
		})
	}
}

// A process that does not end keeps its namespace, and the device in it, when the runtime has removed the name.
func TestAStagedGuardWhoseNamespaceHasLostItsNameIsNotSwept(t *testing.T) {
	r := stagedRig(t, Options{NoTCX: true})
	check.OK(t, r.KillSlot(1))
	check.OK(t, r.RemoveLease(r.key))
	process := check.Value(os.Open(r.pod.path))(t)
	defer process.Close()
	r.pod.remove()
	check.None(t, r.sweepsIn(500*time.Millisecond), "swept while the device lives")
	check.OK(t, os.WriteFile(r.pod.path, nil, 0o400))
	check.OK(t, unix.Mount(fmt.Sprintf("/proc/self/fd/%d", process.Fd()), r.pod.path, "", unix.MS_BIND, ""))
	again := check.Value(lan.Open(r.pod.Name))(t)
	defer again.Close()
	r.pod.Namespace = again
	guarded, other := r.leaks()
	equal(t, "anything leaks", guarded || other, false)

	r.pod.deleteLink("eth0")
	check.List(t, r.sweepsIn(10*time.Second), []uint32{1}, "swept once the device is gone")
}
