// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/fenceline/fenceline/test/check"
)

// judged is a bench like b whose frames all go to judge(), since the record of no slot names an address.
func judged(t testing.TB, s Sources) *bench {
	t.Helper()
	b := newGuardedBench(t, s)
	for slot := range uint32(3) {
		record := check.Value(b.Slots.read(slot))(t)
		record.Leased4, record.Leased6.Word = 0, [4]uint32{}
		check.OK(t, b.Slots.write(slot, record))
	}
	return b
}

// paths are the programs that let the usual packets pass without judge().
var paths = []Where{WhereGuardEgress, WhereGuardIngress, WhereObserverEgress}

// usual are packets of the rig's pod that pass on the short path.
func usual() map[string][]byte {
	return map[string][]byte{
		"UDP":               udpFrom(addr4),
		"UDP by IPv6":       udpFrom(addr6),
		"TCP":               fromPod4(6, make([]byte, 20)...),
		"TCP by IPv6":       fromPod6(addr6, 6, make([]byte, 20)),
		"first fragment":    fragmented4(udpFrom(addr4), 0, true),
		"UDP to port 67":    fromPod4(17, ports(68, 67)...),
		"UDP to port 547":   fromPod6(addr6, nextUDP, ports(546, 547)),
		"UDP of a sibling":  withSource(otherMAC, udpFrom(other4)),
		"TCP of a stranger": eth(podMAC, remoteMAC, etherIPv4, ipv4(far4, addr4)),
	}
}

// Where the lease is missing, only the short path lets the packet pass.
func TestUsualPacketsPassByTheRecordOfTheirSlot(t *testing.T) {
	b := newGuardedBench(t, guarded(SourcesEnforce))
	for _, addr := range []netip.Addr{addr4, addr6} {
		check.OK(t, b.maps.Leases.Delete(key(addr).layout()))
	}
	for name, frame := range usual() {
		if slices.Contains([]string{"UDP of a sibling", "TCP of a stranger"}, name) {
			continue
		}
		for _, where := range paths {
			b.expect(where, frame, pass)
		}
	}
	b.expect(WhereGuardEgress, fromPod4(1, 8, 0, 0, 0), drop, ResultDropUnleased)
	b.expect(WhereGuardEgress, fromPod6(addr6, nextICMPv6, echo()), drop, ResultDropUnleased)
}

// The short path lets nothing pass that judge() drops, whichever byte of a usual packet is another.
func TestUsualPacketsAreThoseThatJudgeLetsPass(t *testing.T) {
	all := usual()
	// The bytes where an IPv4 header would be without the tag make one.
	all["a tag like an IPv4 header"] = tagged(0x4500, slices.Concat(udpFrom(addr4)[:12], be16(etherIPv4),
		[]byte{0x45, 0, 0, 0, 0, 6, 0, 0}, addr4.AsSlice(), make([]byte, 20)))
	for _, mode := range []SourceMode{SourcesOff, SourcesEnforce} {
		short, long := newGuardedBench(t, guarded(mode)), judged(t, guarded(mode))
		for name, frame := range all {
			t.Run(fmt.Sprintf("%s in mode %d", name, mode), func(t *testing.T) {
				short.t, long.t = t, t
				var got, want map[Counter]uint64
				var differs int
				want = long.counted(func() { got = short.counted(func() { differs = compare(t, short, long, frame) }) })
				equal(t, "frames with another verdict", differs, 0)
				equal(t, "counters agree", maps.Equal(got, want), true)
			})
		}
	}
}

// compare runs a frame with each byte of its headers changed through the programs of both.
func compare(t *testing.T, short, long *bench, frame []byte) (differs int) {
	t.Helper()
	const headers = 14 + 40 + 8
	for at := range min(len(frame), headers) {
		const icmp, tcp, vrrp, dhcp, dhcpv6 = 1, 6, 112, 68, 546 & 0xff
		for _, change := range []byte{0, 1, 2, 8, 32, 128, 0xff, frame[at] ^ icmp, frame[at] ^ tcp, frame[at] ^ nextUDP, frame[at] ^ vrrp, frame[at] ^ dhcp, frame[at] ^ dhcpv6} {
			changed := slices.Clone(frame)
			changed[at] ^= change
			for _, where := range paths {
				got, want := short.verdict(where, changed), long.verdict(where, changed)
				if got != want {
					differs++
					t.Logf("%s, byte %d changed by %#x: verdict %d, judge() has %d", where, at, change, int32(got), int32(want))
				}
			}
		}
	}
	return differs
}

// verdict is that of a program, or none if the kernel runs no such frame.
func (b *bench) verdict(where Where, frame []byte) uint32 {
	verdict, err := b.program(where).Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)})
	if err != nil {
		return 0
	}
	return verdict
}

func TestUsualPacketsOfAFencedOrLostAddressArePassedNoMore(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(b *bench, addr netip.Addr)
		why  Result
	}{
		"on another segment": {func(b *bench, addr netip.Addr) {
			record := check.Value(b.Slots.read(1))(b.t)
			record.Segment++
			check.OK(b.t, b.Guards.change(1, record))
		}, ResultDropUnleased},
		"fenced":        {func(b *bench, addr netip.Addr) { b.fence(addr) }, ResultDropFenced},
		"lease removed": {func(b *bench, addr netip.Addr) { check.OK(b.t, b.Leases.Remove(key(addr))) }, ResultDropUnleased},
		"another's":     {func(b *bench, addr netip.Addr) { b.bind(addr, 2) }, ResultDropSlot},
		"slot is dead":  {func(b *bench, addr netip.Addr) { check.OK(b.t, b.Guards.Kill(1)) }, ResultDropDead},
		"slot is dead, gate shut": {func(b *bench, _ netip.Addr) {
			record := check.Value(b.Slots.read(1))(b.t)
			record.Status = slotDead
			check.OK(b.t, b.Slots.write(1, record))
		}, ResultDropDead},
		"unproven lease": {func(b *bench, addr netip.Addr) { check.OK(b.t, b.Leases.Install(key(addr), unproven())) }, ResultDropFenced},
	} {
		t.Run(name, func(t *testing.T) {
			b := newGuardedBench(t, guarded(SourcesEnforce))
			for _, addr := range []netip.Addr{addr4, addr6} {
				for _, where := range paths {
					b.expect(where, udpFrom(addr), pass)
				}
			}
			for _, addr := range []netip.Addr{addr4, addr6} {
				tc.lose(b, addr)
				b.expect(WhereGuardEgress, udpFrom(addr), drop, tc.why)
				b.expect(WhereObserverEgress, udpFrom(addr), drop, tc.why)
			}
		})
	}
}

// The record of a slot may be that of another parent before the MACs of the devices follow.
func TestAPacketOnAnotherSegmentIsNotUsual(t *testing.T) {
	b := newGuardedBench(t, guarded(SourcesEnforce))
	record := check.Value(b.Slots.read(1))(t)
	record.Segment++
	check.OK(t, b.Slots.write(1, record))
	for _, addr := range []netip.Addr{addr4, addr6} {
		b.expect(WhereObserverEgress, udpFrom(addr), drop, ResultDropUnleased)
	}
}

func TestNoPacketOfNobodyIsUsual(t *testing.T) {
	b := newBench(t, setup{sources: guarded(SourcesEnforce)})
	for _, where := range []Where{WhereGuardEgress, WhereObserverEgress} {
		b.expect(where, udpFrom(none4), drop, ResultDropUnspecified)
		b.expect(where, udpFrom(none6), drop, ResultDropUnspecified)
	}
}

func unproven() Lease {
	return Lease{Token: heldToken, Network: network, Slot: 1, MAC: podMAC, Flags: FlagUnproven}
}

// named are the addresses in the record of a slot.
func (b *bench) named(slot uint32) [2]netip.Addr {
	b.t.Helper()
	s := check.Value(b.Slots.read(slot))(b.t)
	return [2]netip.Addr{s.named(true), s.named(false)}
}

func TestTheRecordOfASlotNamesWhatIsLeasedToIt(t *testing.T) {
	b := newBench(t, setup{})
	names := func(what string, want4, want6 netip.Addr) {
		t.Helper()
		equal(t, what, b.named(1), [2]netip.Addr{want4, want6})
	}
	names("at first", none4, none6)
	check.OK(t, b.Leases.Install(Key{testSegment + 1, addr4}, Lease{Token: 1, Slot: 1, MAC: podMAC}))
	names("an address of another segment", none4, none6)
	check.OK(t, b.Leases.Install(key(netip.AddrFrom16(addr4.As16())), Lease{Token: 1, Slot: 1, MAC: podMAC}))
	names("an IPv4-mapped one", addr4, none6)
	b.bind(addr6, 1)
	b.bind(other6, 1)
	names("two of a family", addr4, addr6)
	check.OK(t, b.Guards.change(1, Guard{Segment: testSegment}.record(7)))
	names("attached again", addr4, addr6)
	check.OK(t, b.Leases.Install(key(far4), Lease{}))
	names("a watch", addr4, addr6)
	check.OK(t, b.Leases.Remove(key(other6)))
	names("without the other one", addr4, addr6)
	check.OK(t, b.Leases.Remove(key(addr6)))
	names("without the named one", addr4, none6)
	check.OK(t, b.Guards.Detach(1))
	names("detached", none4, none6)
}

// A VLAN device in the pod hands the tag over beside the frame, which then looks like a usual packet.
func TestATagBesideAUsualPacketIsSeen(t *testing.T) {
	b := newGuardedBench(t, guarded(SourcesEnforce))
	for _, where := range paths {
		b.t = t
		equal(t, where.String()+" of an untagged packet", b.after(where, nil), pass)
		equal(t, where.String()+" of a tagged packet", b.after(where, asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1),
			asm.Mov.Imm(asm.R2, 0x0081), // 802.1Q, in network order
			asm.Mov.Imm(asm.R3, 7),
			asm.FnSkbVlanPush.Call(),
			asm.Mov.Reg(asm.R1, asm.R6),
		}), drop)
	}
}

// after runs a program on a usual packet after some instructions.
func (b *bench) after(where Where, first asm.Instructions) uint32 {
	b.t.Helper()
	next := check.Value(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1}))(b.t)
	defer next.Close()
	check.OK(b.t, next.Put(uint32(0), b.program(where)))
	program := check.Value(ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: slices.Concat(first, asm.Instructions{
		asm.LoadMapPtr(asm.R2, next.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return(),
	})}))(b.t)
	defer program.Close()
	return check.Value(program.Run(&ebpf.RunOptions{Data: udpFrom(addr4), DataOut: make([]byte, 256)}))(b.t)
}

// FuzzPrograms puts arbitrary frames through each program. No frame may make a run fail, none that a
// guard drops may pass on the way to the parent, and none that judge() drops may be a usual packet.
func FuzzPrograms(f *testing.F) {
	all := soft()
	maps.Copy(all, hard())
	for _, o := range all {
		f.Add(o.frame)
	}
	for _, frame := range honest() {
		f.Add(frame)
	}
	for _, frame := range usual() {
		f.Add(frame)
	}
	f.Add(eth(broadcast, podMAC, etherVLAN)) // ends within its tag
	b := newGuardedBench(f, guarded(SourcesEnforce))
	check.OK(f, b.Sources.SetTrusted(testSegment, nil, true))
	long := judged(f, guarded(SourcesEnforce))
	check.OK(f, long.Sources.SetTrusted(testSegment, nil, true))
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			return // the kernel runs no such frame
		}
		verdicts := map[Where]uint32{}
		for _, where := range []Where{WhereGuardEgress, WhereGuardIngress, WhereObserverIngress, WhereObserverEgress} {
			verdict, err := b.program(where).Run(&ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)})
			if err != nil {
				return // too short for its ethertype
			}
			check.That(t, verdict == pass || verdict == drop || verdict == redirect, "%s: verdict %d", where, verdict)
			verdicts[where] = verdict
			want := long.verdict(where, frame)
			check.That(t, verdict == want, "%s: verdict %d on % x, judge() has %d", where, int32(verdict), frame, int32(want))
		}
		if verdicts[WhereGuardEgress] == drop && verdicts[WhereObserverEgress] != drop && string(frame[6:12]) != string(parentMAC) {
			t.Errorf("the guard drops % x, and the observer does not", frame)
		}
	})
}

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
			check.OK(t, b.Sources.SetTrusted(testSegment, []net.HardwareAddr{pick()}, random.IntN(2) == 0))
		case 1:
			check.OK(t, b.Guards.Detach(slot))
		default:
			check.OK(t, b.Slots.write(slot, slotOf(Guard{Slot: slot, Segment: testSegment + random.IntN(2)})))
			check.OK(t, b.Sources.Set(slot, Sources{Mode: SourcesEnforce, MAC: pick(), MACs: []net.HardwareAddr{pick()}}))
		}
		got := b.verdicts(macs)
		check.OK(t, b.Sources.locals.putIndex(hashes, &localIndex{}))
		want := b.verdicts(macs)
		check.OK(t, b.Sources.locals.putIndex(hashes, b.Sources.locals.index))
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
	for k := range b.Sources.locals.entries {
		check.OK(t, b.maps.Locals.Delete(k))
	}
	b.expect(WhereObserverEgress, udpFrom(far4), drop, ResultDropUnleased)
	b.expect(WhereObserverEgress, withSource(remoteMAC, udpFrom(far4)), pass)
}

// A process finds the index of another version, or none: it writes all entries before it loads programs.
func TestAnOpenedKernelWritesTheWholeIndex(t *testing.T) {
	dir := bpffs(t)
	k := openKernel(t, dir)
	check.OK(t, k.Slots.write(1, slotOf(Guard{Slot: 1, Segment: testSegment})))
	check.OK(t, k.Sources.Set(1, guarded(SourcesEnforce)))
	want := k.Sources.locals.index
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
			check.OK(t, b.Slots.write(slot+1, slotOf(Guard{Slot: slot + 1, Segment: testSegment})))
			if slot+1 != dead%3+1 {
				check.OK(t, b.Sources.Set(slot+1, Sources{Mode: SourcesEnforce, MAC: podMAC}))
			}
		}
		check.OK(t, b.Guards.Kill(dead))
		living := 6 - dead - (dead%3 + 1)
		key := observerLocalKey{Segment: testSegment}
		key.Mac.Part = macLayout(podMAC)
		equal(t, "slot of the MAC", b.Sources.locals.entries[key], living)
	}
}
