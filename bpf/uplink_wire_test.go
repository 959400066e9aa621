// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !notcx

package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/test/check"
)

// uplinkRig is a node with a bridge whose port p0 brings nothing to the parent of VLAN 100, as Open vSwitch without its
// daemon. A device stands in for that parent, since not every kernel has VLANs.
type uplinkRig struct {
	*rig
	vlan int
	held Key
	// passed has the frames that the uplink lets in, acked the tag and the frame that come back to the stranger.
	passed *socket
	acked  func() (tag uint16, frame []byte)
	out    *socket
}

func newUplinkRig(t *testing.T) *uplinkRig {
	t.Helper()
	u := &uplinkRig{rig: newRigOf(t, Options{}, (*netns).bridged)}
	check.OK(t, u.node.AddBridge("vlan"))
	u.vlan = u.node.index("vlan")
	u.held = Key{Segment: uint32(u.vlan), Addr: addr4}
	u.set(100)
	u.hold(0)
	u.passed, u.acked, u.out = u.sibling.socket("eth0", etherClaim), u.ext.tagged("p0"), u.ext.socket("p0", allProtocols)
	return u
}

// tagged receives claims and acks with their tags, which a socket of all protocols has beside its frames.
func (ns *netns) tagged(device string) func() (tag uint16, frame []byte) {
	ns.t.Helper()
	all := binary.NativeEndian.Uint16(be16(allProtocols))
	fd := in(ns, func() (int, error) { return unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)) })
	ns.t.Cleanup(func() { unix.Close(fd) })
	check.OK(ns.t, errors.Join(
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ns.index(device)}),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}),
	))
	isClaim := protocol(etherClaim)
	return func() (uint16, []byte) {
		ns.t.Helper()
		for {
			frame, beside := make([]byte, 2048), make([]byte, 256)
			n, m, _, from, err := unix.Recvmsg(fd, frame, beside, 0)
			check.OK(ns.t, err)
			if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING || !isClaim(frame) {
				continue
			}
			tags := check.Value(unix.ParseSocketControlMessage(beside[:m]))(ns.t)
			return binary.NativeEndian.Uint16(tags[0].Data[16:]), frame[:n] // tp_vlan_tci
		}
	}
}

func (u *uplinkRig) set(vid uint16) {
	u.t.Helper()
	u.node.do(func() error {
		if err := u.Observers.Attach(u.vlan); err != nil {
			return err
		}
		return u.Observers.SetUplinks(u.vlan, vid, []int{u.parent})
	})
}

func (u *uplinkRig) hold(flags LeaseFlags) {
	u.t.Helper()
	check.OK(u.t, u.Leases.Install(u.held, Lease{Token: heldToken, Network: network, Slot: 9, MAC: otherMAC, Flags: flags}))
}

// send sends a claim or an ack in VLAN 100, and waits until it is through the uplink.
func (u *uplinkRig) send(flags claim.Flags, token uint64) (frame []byte) {
	u.t.Helper()
	f := claim.Frame{Flags: flags, Network: network, Addr: addr4, Token: token}
	frame = claimFrame(u.t, f, broadcast, u.ext.mac("p0"), keyA)
	u.out.send(tagged(100, frame))
	u.passed.expect("claim behind the uplink, as it was sent", func(in []byte) bool { return bytes.Equal(in[:len(frame)], frame) })
	return frame
}

func (u *uplinkRig) moved(fn func()) func(Result) uint64 {
	u.t.Helper()
	moved := (&bench{Kernel: u.Kernel, t: u.t}).counted(fn)
	return func(r Result) uint64 { return moved[Counter{WhereObserverIngress, r}] }
}

func (u *uplinkRig) isFenced() bool { u.t.Helper(); return check.Value(u.Leases.Fenced(u.held))(u.t) }

func TestAClaimInAVLANFencesAndIsAckedAtTheUplink(t *testing.T) {
	u := newUplinkRig(t)
	frame := u.send(claim.Asks(heldToken), 200)
	tag, ack := u.acked()
	equal(t, "tag of the ack", tag, 100)
	checkAck(t, ack, addr4, 200, u.ext.mac("p0"), u.node.mac("vlan"), keyA)
	equal(t, "fenced", u.isFenced(), true)
	e := u.events.next()
	check.That(t, e.Type == EventFenced && e.Key == u.held, "the event is %+v", e)
	// Probes do not come by this way.
	equal(t, "heard others", has(u.Sightings.Heard(uint32(u.vlan)))(t), false)

	// The daemon lives, and brings the claim to the parent as well.
	observer := check.Value(u.Observers.load(uint32(u.vlan)))(t)
	t.Cleanup(observer.Close)
	b := &bench{Kernel: u.Kernel, t: t, observer: observer}
	b.expect(WhereObserverIngress, frame, redirect, ResultAgain, ResultAckSent)
}

func TestWhatDoesNotFenceAtTheUplink(t *testing.T) {
	u := newUplinkRig(t)
	for what, send := range map[string]func(){
		"an older claim": func() { u.send(claim.Asks(heldToken), heldToken-1) },
		"an ack":         func() { u.send(claim.FlagAck, heldToken+1) },
	} {
		moved := u.moved(send)
		check.That(t, moved(ResultClaim) == 1 && moved(ResultFenced) == 0 && moved(ResultAck) == 0 && moved(ResultOld) == 0, "%s is taken at the uplink", what)
	}
	for what, change := range map[string]func() (undo func()){
		"without a tag":  func() func() { u.claim(u.out, 200); return func() {} },
		"of another tag": func() func() { u.set(200); return func() { u.set(100) } },
		"of two tags": func() func() {
			f := claim.Frame{Network: network, Addr: addr4, Token: 200}
			u.out.send(tagged(100, tagged(5, claimFrame(t, f, broadcast, u.ext.mac("p0"), keyA))))
			return func() {}
		},
		"whose parent has gone": func() func() { u.unobserve(u.vlan); return func() { u.set(100) } },
	} {
		undo := change()
		moved := u.moved(func() { u.send(claim.Asks(heldToken), heldToken) }) // the marker
		check.That(t, !u.isFenced(), "a claim %s fences", what)
		taken := uint64(1)
		if what == "of another tag" || what == "whose parent has gone" {
			taken = 0
		}
		equal(t, "claims taken "+what, moved(ResultClaim), taken)
		undo()
	}
}

func TestAtTheUplinkOnlyTheNamedHolderWithAGuardAcks(t *testing.T) {
	u := newUplinkRig(t)
	for token, c := range []struct {
		flags LeaseFlags
		asks  claim.Flags
		acks  uint64
	}{
		{0, claim.Asks(heldToken), 1},
		{0, claim.Asks(heldToken - 1), 0},
		{FlagUnguarded, claim.Asks(heldToken), 0},
		{FlagVF, claim.Asks(heldToken), 0},
	} {
		u.hold(c.flags)
		moved := u.moved(func() { u.send(c.asks, uint64(200+token)) })
		check.That(t, u.isFenced() && moved(ResultFenced) == 1 && moved(ResultAckSent) == c.acks, "with the flags %d, asked %d: fenced %v, %d acks", c.flags, c.asks, u.isFenced(), moved(ResultAckSent))
	}
}

func TestWithoutTCXUplinksAreLeftToOpenVSwitch(t *testing.T) {
	r := newRigWith(t, Options{NoTCX: true})
	check.OK(t, r.node.AddBridge("uplink"))
	uplink := r.node.index("uplink")
	r.node.do(func() error { return r.Observers.SetUplinks(r.parent, 100, []int{uplink}) })
	check.None(t, check.Value(entriesOf[uint64, uint32](r.maps.Uplinks))(t), "the uplinks are")
	equal(t, "observed", in(r.node, r.Observers.Attached)[uplink], false)
}
