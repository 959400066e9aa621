// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/test/check"
)

// crowd are MACs of few hashes, with a slot each in the second half.
func crowd() (macs []net.HardwareAddr) {
	for i := range byte(12) {
		macs = append(macs, net.HardwareAddr{2, i / 4, 0, i / 4, 0, i % 4})
	}
	return macs
}

// verdicts are those of the observer and of the pod's guard on frames with each MAC. The sources are not
// leased, so a frame of a slot is dropped.
func (b *bench) verdicts(macs []net.HardwareAddr) (all []uint32) {
	for _, m := range macs {
		all = append(all, b.verdict(WhereObserverEgress, withSource(m, udpFrom(far4))), b.verdict(WhereGuardIngress, withSource(m, udpFrom(far4))))
	}
	return all
}

// Whatever changes, the index leads to the same verdicts as the map of locals alone.
func TestTheIndexAgreesWithTheLocals(t *testing.T) {
	const steps = 200
	macs := crowd()
	hashes := hashesOf(macs)
	equal(t, "hashes", len(hashes), 4)
	b := newBench(t, setup{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func() net.HardwareAddr { return macs[random.IntN(len(macs))] }
	var drops int
	for step := range steps {
		slot := uint32(1 + random.IntN(4))
		switch random.IntN(6) {
		case 0:
			check.OK(t, b.SetTrusted(testSegment, []net.HardwareAddr{pick()}, random.IntN(2) == 0))
		case 1:
			check.OK(t, b.DetachGuard(slot))
		default:
			check.OK(t, b.putSlot(slot, slotOf(enforce.Guard{Slot: slot, Segment: testSegment + random.IntN(2)})))
			check.OK(t, b.SetSources(slot, Sources{Mode: SourcesEnforce, MAC: pick(), MACs: []net.HardwareAddr{pick()}}))
		}
		got := b.verdicts(macs)
		check.OK(t, b.putIndex(hashes, &localIndex{}))
		want := b.verdicts(macs)
		check.OK(t, b.putIndex(hashes, b.index))
		check.Must(t, slices.Equal(got, want), "step %d: verdicts %d, without the index %d", step, got, want)
		for _, v := range want {
			if v == drop {
				drops++
			}
		}
	}
	equal(t, "frames were dropped", drops > steps, true)
}

func hashesOf(macs []net.HardwareAddr) (hashes []uint32) {
	for _, m := range macs {
		hashes = append(hashes, localHash(macLayout(m)))
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

// With every other entry of the map of locals gone, the index alone still knows the slot.
func TestTheIndexAloneNamesTheSlotOfAMAC(t *testing.T) {
	b := newGuardedBench(t, guarded(SourcesEnforce))
	for k := range b.locals {
		check.OK(t, b.maps.Locals.Delete(k))
	}
	b.expect(WhereObserverEgress, udpFrom(far4), drop, ResultDropUnleased)
	b.expect(WhereObserverEgress, withSource(remoteMAC, udpFrom(far4)), pass)
}

// A process finds the index of another version, or none: it writes all entries before it loads programs.
func TestAnOpenedKernelWritesTheWholeIndex(t *testing.T) {
	dir := bpffs(t)
	k := openKernel(t, dir)
	check.OK(t, k.putSlot(1, slotOf(enforce.Guard{Slot: 1, Segment: testSegment})))
	check.OK(t, k.SetSources(1, guarded(SourcesEnforce)))
	want := k.index
	check.OK(t, k.maps.LocalIndex.Put(localHash(macLayout(podMAC)), localNobody))
	check.OK(t, k.maps.LocalIndex.Put(localHash(macLayout(otherMAC)), localEntry(macLayout(otherMAC), 9)))
	check.OK(t, k.Close())
	again := openKernel(t, dir)
	for hash := range localHashes {
		var got uint64
		check.OK(t, again.maps.LocalIndex.Lookup(hash, &got))
		equal(t, "entry", got, want.at(hash))
	}
}

// A sandbox that is made again may have the MAC of the one before it, whose slot is dead until it is swept.
func TestAMACIsThatOfTheLivingSlot(t *testing.T) {
	for _, dead := range []uint32{1, 2, 3} {
		b := newBench(t, setup{})
		for slot := range uint32(3) {
			check.OK(t, b.putSlot(slot+1, slotOf(enforce.Guard{Slot: slot + 1, Segment: testSegment})))
			if slot+1 != dead%3+1 {
				check.OK(t, b.SetSources(slot+1, Sources{Mode: SourcesEnforce, MAC: podMAC}))
			}
		}
		check.OK(t, b.KillSlot(dead))
		living := 6 - dead - (dead%3 + 1)
		key := observerLocalKey{Segment: testSegment}
		key.Mac.Part = macLayout(podMAC)
		equal(t, "slot of the MAC", b.locals[key], living)
	}
}
