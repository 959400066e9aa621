// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/test/check"
)

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
	if err := r.PrepareGuard(Guard{Slot: MaxSlot + 1}); !errors.Is(err, ErrSlot) {
		t.Errorf("got %v, want %v", err, ErrSlot)
	}
	check.OK(t, r.PrepareGuard(Guard{Slot: 2, Segment: r.parent}))
	check.OK(t, r.Close())
	equal(t, "prepared after closing", len(r.stock), 0)
}

func programID(t *testing.T, p *ebpf.Program) ebpf.ProgramID {
	t.Helper()
	info, err := p.Info()
	check.OK(t, err)
	id, ok := info.ID()
	equal(t, "has an ID", ok, true)
	return id
}
