// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/dchest/siphash"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
)

// checkAck wants an authentic ack of the rig's holder for addr and token, from one MAC to another.
func checkAck(t testing.TB, frame []byte, addr netip.Addr, token uint64, to, from net.HardwareAddr, key ClaimKey) {
	t.Helper()
	equal(t, "length", len(frame), claim.EthernetLen)
	equal(t, "destination", net.HardwareAddr(frame[:6]).String(), to.String())
	equal(t, "source", net.HardwareAddr(frame[6:12]).String(), from.String())
	f := check.Value(capture.Claim(frame[14:], claim.Key(key)))(t)
	equal(t, "ack", f, claim.Frame{Flags: claim.FlagAck | claim.Asks(heldToken), Network: network, Addr: addr, Token: token})
}

func TestANewerClaimFencesIsAckedAndConsumed(t *testing.T) {
	for _, addr := range []netip.Addr{addr4, addr6} {
		t.Run(addr.String(), func(t *testing.T) {
			b := newBench(t, setup{}, addr)
			verdict, out := b.run(WhereObserverIngress, remoteClaim(t, addr, 101))
			equal(t, "verdict", verdict, redirect)
			checkAck(t, out, addr, 101, remoteMAC, parentMAC, keyA)
			equal(t, "max", b.state(addr).MaxToken, 101)
			equal(t, "fenced", b.fenced(addr), true)
			e := b.events.next()
			equal(t, "type", e.Type, EventFenced)
			equal(t, "token", e.Token, 101)
			equal(t, "mine", e.Mine, 100)
			equal(t, "key", e.Key, key(addr))
			equal(t, "MAC", e.MAC.String(), remoteMAC.String())
			equal(t, "where", e.Where, WhereObserverIngress)
		})
	}
}

func TestAClaimAskedAgainIsAckedAgainAndReportedOnce(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), redirect, ResultFenced, ResultAckSent)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), redirect, ResultAgain, ResultAckSent)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 150), redirect, ResultAgain, ResultAckSent)
	equal(t, "max", b.state(addr4).MaxToken, 200)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 300), redirect, ResultFenced, ResultAckSent)
	equal(t, "max raised though fenced before", b.state(addr4).MaxToken, 300)
	equal(t, "first event", b.events.next().Token, 200)
	equal(t, "second event", b.events.next().Token, 300)
}

// Its address may have been given to somebody else since, for whom this ack would stand.
func TestADeadSlotIsFencedWithoutAnAck(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.OK(t, b.Guards.Kill(1))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), drop, ResultFenced)
	equal(t, "fenced", b.fenced(addr4), true)
}

func TestAClaimUnderThePreviousKeyIsAckedUnderIt(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	f := claim.Frame{Flags: claim.Asks(heldToken), Network: network, Addr: addr4, Token: 200}
	verdict, out := b.run(WhereObserverIngress, claimFrame(t, f, podMAC, remoteMAC, keyB))
	equal(t, "verdict", verdict, redirect)
	checkAck(t, out, addr4, 200, remoteMAC, parentMAC, keyB)
}

func TestAPriorityTaggedClaimFencesAndKeepsItsTag(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	verdict, out := b.run(WhereObserverIngress, tagged(0, remoteClaim(t, addr4, 200)))
	equal(t, "verdict", verdict, redirect)
	equal(t, "tag kept", binary.BigEndian.Uint16(out[12:]), etherVLAN)
	checkAck(t, slices.Concat(out[:12], out[16:]), addr4, 200, remoteMAC, parentMAC, keyA)
}

func TestClaimsThatDoNotFence(t *testing.T) {
	for name, tc := range map[string]struct {
		frame   func(t testing.TB) []byte
		verdict uint32
		result  []Result
	}{
		"older": {func(t testing.TB) []byte { return remoteClaim(t, addr4, 99) }, drop, []Result{ResultOld}},
		"equal": {func(t testing.TB) []byte { return remoteClaim(t, addr4, 100) }, drop, []Result{ResultEqual}},
		"older and forged": {func(t testing.TB) []byte {
			return signed(t, claim.Frame{Network: network, Addr: addr4, Token: 99}, keyC)
		}, drop, []Result{ResultForged}},
		"forged": {func(t testing.TB) []byte {
			return signed(t, claim.Frame{Network: network, Addr: addr4, Token: 200}, keyC)
		}, drop, []Result{ResultForged}},
		"token changed after signing": {func(t testing.TB) []byte {
			f := remoteClaim(t, addr4, 99)
			f[14+32] = 0xff
			return f
		}, drop, []Result{ResultForged}},
		"replayed for another address": {func(t testing.TB) []byte {
			f := remoteClaim(t, other4, 200)
			addr := addr4.As16()
			copy(f[14+16:], addr[:])
			return f
		}, drop, []Result{ResultForged}},
		"another cluster's network": {func(t testing.TB) []byte {
			return signed(t, claim.Frame{Network: otherNetwork, Addr: addr4, Token: 200}, keyA)
		}, pass, []Result{ResultForeign}},
		"address not held here": {func(t testing.TB) []byte { return remoteClaim(t, far4, 200) }, drop, []Result{ResultNotHeld}},
		"wire version 2": {func(t testing.TB) []byte {
			f := remoteClaim(t, addr4, 200)
			f[14+3] = '2'
			return f
		}, pass, []Result{ResultMagic}},
		"cut":          {func(t testing.TB) []byte { return remoteClaim(t, addr4, 200)[:61] }, pass, []Result{ResultShort}},
		"another VLAN": {func(t testing.TB) []byte { return tagged(100, remoteClaim(t, addr4, 200)) }, pass, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, setup{}, addr4)
			b.expect(WhereObserverIngress, tc.frame(t), tc.verdict, tc.result...)
			equal(t, "max", b.state(addr4).MaxToken, 0)
			equal(t, "fenced", b.fenced(addr4), false)
			b.expect(WhereGuardEgress, udpFrom(addr4), pass)
		})
	}
}

func signed(t testing.TB, f claim.Frame, key ClaimKey) []byte {
	return claimFrame(t, f, broadcast, remoteMAC, key)
}

func TestAClaimOfOurOtherNetworkIsNotForThisLease(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.OK(t, b.Leases.SetNetworks([]uint64{network, otherNetwork}))
	b.expect(WhereObserverIngress, signed(t, claim.Frame{Network: otherNetwork, Addr: addr4, Token: 200}, keyA), drop, ResultNotHeld)
	equal(t, "fenced", b.fenced(addr4), false)
	check.OK(t, b.Leases.SetNetworks([]uint64{network}))
	b.expect(WhereObserverIngress, signed(t, claim.Frame{Network: otherNetwork, Addr: addr4, Token: 200}, keyA), pass, ResultForeign)
}

func TestNetworksOfOneRemainderAreAllOurs(t *testing.T) {
	b := newBench(t, setup{})
	all := []uint64{network, network + 1024, network + 2048}
	check.OK(t, b.Leases.SetNetworks(all))
	for _, n := range all {
		b.expect(WhereObserverIngress, signed(t, claim.Frame{Network: n, Addr: far4, Token: 5}, keyA), drop, ResultNotHeld)
	}
	b.expect(WhereObserverIngress, signed(t, claim.Frame{Network: network + 3072, Addr: far4, Token: 5}, keyA), pass, ResultForeign)
}

// A network that does not fit is refused, the others go on, and room that is made is used.
func TestThousandsOfNetworks(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	most := make([]uint64, b.maps.Networks.MaxEntries())
	for i := range most {
		most[i] = otherNetwork + uint64(i)
	}
	unfit := Lease{Token: 1, Network: network + 77, Slot: 1, MAC: podMAC}
	check.Is(t, b.Leases.SetNetworks(most), ErrNetworksFull, "one network too many, with that of the lease:")
	check.Is(t, b.Leases.Install(key(far4), unfit), ErrNetworksFull, "a lease of a network that does not fit:")
	check.OK(t, b.Leases.Install(key(other4), Lease{})) // a watch
	check.OK(t, b.Leases.SetNetworks([]uint64{unfit.Network}))
	check.OK(t, b.Leases.Install(key(far4), unfit))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), redirect, ResultFenced, ResultAckSent)
}

func TestALeaseOutlivesThePoolOfItsNetwork(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.OK(t, b.Leases.SetNetworks(nil))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), redirect, ResultFenced, ResultAckSent)
}

func TestAWatchedAddressIsNotFenced(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(addr4), Lease{}))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), drop, ResultNotHeld)
	equal(t, "fenced", b.fenced(addr4), false)
}

func TestReplaysAndRandomTagsDoNothing(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.fence(addr4)
	check.OK(t, b.Leases.Install(key(addr4), Lease{Token: 300, Network: network, Slot: 1, MAC: podMAC}))
	replayed, forged := remoteClaim(t, addr4, 200), remoteClaim(t, addr4, 400)
	for range 1000 {
		b.run(WhereObserverIngress, replayed)
		binary.LittleEndian.PutUint64(forged[14+40:], rand.Uint64())
		b.run(WhereObserverIngress, forged)
	}
	for bit := range 8 * (claim.Len - 8) { // flips within the signed part, flags aside
		f := remoteClaim(t, addr4, 400)
		f[14+bit/8] ^= 1 << (bit % 8)
		b.run(WhereObserverIngress, f)
	}
	equal(t, "max", b.state(addr4).MaxToken, 200)
	equal(t, "fenced", b.fenced(addr4), false)
	equal(t, "acked", b.state(addr4).AckedToken, 0)
}

// A program that drives its VF itself speaks on, until the agent has switched the VF off.
func TestAHolderWithoutAGuardIsAckedOnceItsVFIsOff(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	l, _, err := b.Leases.Lease(key(addr4))
	check.OK(t, err)
	l.Flags = FlagUnguarded
	check.OK(t, b.Leases.Install(key(addr4), l))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), drop, ResultFenced)
	equal(t, "event", b.events.next().Type, EventFenced)
	l.Flags = 0
	check.OK(t, b.Leases.Install(key(addr4), l))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), redirect, ResultAgain, ResultAckSent)
}

// The frames of a VF do not pass the parent: with its filters removed it would speak on.
func TestOnlyTheGuardOfAVFAcksForIt(t *testing.T) {
	b := newBench(t, setup{verify: true}, addr4)
	l, _, err := b.Leases.Lease(key(addr4))
	check.OK(t, err)
	l.Flags = FlagVF
	check.OK(t, b.Leases.Install(key(addr4), l))
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 200), drop, ResultFenced)
	b.expect(WhereGuardIngress, remoteClaim(t, addr4, 200), redirect, ResultAgain, ResultAckSent)
}

// Two holders may have the same MAC, so a claim asks by the token of the lease.
func TestAClaimThatAsksAnotherHolderFencesWithoutAnAck(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	asking := func(token, holder uint64) []byte {
		return signed(t, claim.Frame{Flags: claim.Asks(holder), Network: network, Addr: addr4, Token: token}, keyA)
	}
	b.expect(WhereObserverIngress, asking(200, heldToken-1), drop, ResultFenced)
	equal(t, "fenced", b.fenced(addr4), true)
	b.expect(WhereObserverIngress, asking(200, heldToken), redirect, ResultAgain, ResultAckSent)
	b.expect(WhereObserverIngress, asking(200, heldToken+1), drop, ResultAgain)
	// A claim that does not know the last holder asks nobody.
	b.expect(WhereObserverIngress, asking(300, 0), drop, ResultFenced)
}

// firstVersion is a frame as it was before claims asked by token: bits 1 to 31 of the flags named the holder by its MAC,
// and an ack had the digit 1 too.
func firstVersion(flags uint32, token uint64, key ClaimKey) []byte {
	b := make([]byte, claim.Len)
	copy(b, "FLC1")
	binary.BigEndian.PutUint32(b[4:], flags)
	binary.BigEndian.PutUint64(b[8:], network)
	addr := addr4.As16()
	copy(b[16:], addr[:])
	binary.BigEndian.PutUint64(b[32:], token)
	low, high := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	binary.LittleEndian.PutUint64(b[40:], siphash.Hash(low, high, b[:40]))
	return eth(broadcast, remoteMAC, etherClaim, b)
}

func TestAClaimOfTheFirstVersionFencesWithoutAnAck(t *testing.T) {
	for name, flags := range map[string]uint32{
		"which asks this holder by its MAC": binary.BigEndian.Uint32(podMAC[2:]) << 1,
		"which asks every holder":           0,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, setup{}, addr4)
			b.expect(WhereObserverIngress, firstVersion(flags, 200, keyC), drop, ResultForged)
			b.expect(WhereObserverIngress, firstVersion(flags, 200, keyA), drop, ResultFenced)
			equal(t, "fenced", b.fenced(addr4), true)
		})
	}
}

func TestAnAckOfTheFirstVersionCountsForNothing(t *testing.T) {
	b := newBench(t, setup{})
	check.OK(t, b.Leases.Install(key(addr4), Lease{})) // a verifier's watch
	b.expect(WhereObserverIngress, firstVersion(uint32(claim.FlagAck|claim.Asks(heldToken)), 200, keyA), pass, ResultMagic)
	equal(t, "acked", b.state(addr4).AckedToken, 0)
}

func TestAnOlderClaimIsReportedForDefenceAtALimitedRate(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 50), drop, ResultOld)
	e := b.events.next()
	equal(t, "type", e.Type, EventOldClaim)
	equal(t, "token", e.Token, 50)
	equal(t, "mine", e.Mine, 100)
	// One report in 100 ms: most of a burst is not reported.
	moved := b.counted(func() {
		for range 1000 {
			b.run(WhereObserverIngress, remoteClaim(t, addr4, 50))
		}
	})
	equal(t, "old claims", moved[Counter{WhereObserverIngress, ResultOld}], 1000)
	n := moved[Counter{WhereObserverIngress, ResultSuppressed}]
	check.That(t, n >= 500, "%d of 1000 reports suppressed", n)
}

func TestAnAckIsRecordedAndConsumed(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	check.OK(t, b.Leases.Install(key(far4), Lease{})) // a verifier's watch
	for _, addr := range []netip.Addr{addr4, far4} {
		ack := claim.Frame{Flags: claim.FlagAck, Network: network, Addr: addr, Token: 90}
		b.expect(WhereObserverIngress, signed(t, ack, keyC), drop, ResultForged)
		equal(t, "acked by forgery", b.state(addr).AckedToken, 0)
		b.expect(WhereObserverIngress, signed(t, ack, keyA), drop, ResultAck)
		equal(t, "acked", b.state(addr).AckedToken, 90)
		equal(t, "acked by", b.state(addr).AckMAC.String(), remoteMAC.String())
		equal(t, "fenced", b.fenced(addr), false)
		e := b.events.next()
		equal(t, "type", e.Type, EventAck)
		equal(t, "token", e.Token, 90)
	}
	unasked := claim.Frame{Flags: claim.FlagAck, Network: network, Addr: other4, Token: 90}
	b.expect(WhereObserverIngress, signed(t, unasked, keyA), drop, ResultAckUnasked)
}

func TestABridgePortConsumesNothingYetAcks(t *testing.T) {
	b := newBench(t, setup{bridgePort: true}, addr4)
	frame := remoteClaim(t, addr4, 200)
	verdict, out := b.run(WhereObserverIngress, frame)
	equal(t, "verdict", verdict, pass)
	equal(t, "frame unchanged", slices.Equal(out, frame), true)
	equal(t, "fenced", b.fenced(addr4), true)
	b.expect(WhereObserverIngress, remoteClaim(t, far4, 200), pass, ResultNotHeld)
	b.expect(WhereObserverIngress, remoteClaim(t, addr4, 50), pass, ResultOld)
	ack := claim.Frame{Flags: claim.FlagAck, Network: network, Addr: addr4, Token: 90}
	b.expect(WhereObserverIngress, signed(t, ack, keyA), pass, ResultAck)
}

func TestAClaimSentHereFencesLocalHoldersAndLeaves(t *testing.T) {
	b := newBench(t, setup{}, addr4)
	sent := func(token uint64, key ClaimKey) []byte {
		return claimFrame(t, claim.Frame{Network: network, Addr: addr4, Token: token}, broadcast, parentMAC, key)
	}
	b.expect(WhereObserverEgress, sent(100, keyA), pass, ResultEqual)
	b.expect(WhereObserverEgress, sent(99, keyA), pass, ResultOld)
	b.expect(WhereObserverEgress, sent(200, keyC), pass, ResultForged)
	equal(t, "fenced", b.fenced(addr4), false)
	b.expect(WhereObserverEgress, sent(200, keyA), pass, ResultFenced)
	equal(t, "fenced", b.fenced(addr4), true)
	equal(t, "where", b.events.next().Where, WhereObserverEgress)
	ack := claim.Frame{Flags: claim.FlagAck, Network: network, Addr: addr4, Token: 200}
	b.expect(WhereObserverEgress, claimFrame(t, ack, remoteMAC, parentMAC, keyA), pass)
}

func TestTheEventBufferMayOverflowAFenceMayNot(t *testing.T) {
	b := newBench(t, setup{})
	const n = 8000
	addr := netip.MustParseAddr("10.77.0.0")
	k := newKernel(t) // nobody reads its events
	observer := check.Value(k.Observers.load(testSegment))(t)
	t.Cleanup(observer.Close)
	b.Kernel, b.observer = k, observer
	for range n {
		addr = addr.Next()
		b.bind(addr, 1)
		b.run(WhereObserverIngress, remoteClaim(t, addr, 200))
		check.Must(t, b.fenced(addr), "%s is not fenced", addr)
	}
	counts := check.Value(b.Counters())(t)
	check.That(t, counts[Counter{WhereObserverIngress, ResultEventLost}] != 0, "the buffer never overflowed: the test shows nothing")
}

const sipMessage = 40

// sipHash runs the C code of siphash.h in the kernel.
func sipHash(t *testing.T) func(key [16]byte, message [sipMessage]byte) uint64 {
	t.Helper()
	coll := check.Value(ebpf.LoadCollection("testdata/siphash.o"))(t)
	t.Cleanup(coll.Close)
	return func(key [16]byte, message [sipMessage]byte) uint64 {
		frame := append(make([]byte, 14), key[:]...)
		frame = append(frame, message[:]...)
		verdict, out, err := coll.Programs["siphash_frame"].Test(frame)
		check.OK(t, err)
		equal(t, "verdict", verdict, pass)
		return binary.NativeEndian.Uint64(out[14:])
	}
}

func TestSipHashAgreesWithItsPublishedVector(t *testing.T) {
	var message [sipMessage]byte
	for i := range message {
		message[i] = byte(i)
	}
	// The reference implementation's vector for 40 bytes 00 01 02 …, read little endian.
	equal(t, "hash", sipHash(t)(keyA, message), 0x0e3ea96b5304a7d0)
}

func TestSipHashAgreesWithAnotherImplementation(t *testing.T) {
	hash := sipHash(t)
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var key [16]byte
		var message [sipMessage]byte
		for i := range key {
			key[i] = byte(random.Uint32())
		}
		for i := range message {
			message[i] = byte(random.Uint32())
		}
		want := siphash.Hash(binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:]), message[:])
		got := hash(key, message)
		check.Must(t, got == want, "key %x, message %x: %016x, want %016x", key, message, got, want)
	}
}
