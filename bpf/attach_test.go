// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/test/check"
)

func (r *rig) attached() bool {
	r.t.Helper()
	return check.Value(r.GuardAttached(1))(r.t)
}

func TestASlotGuardsOneLivingDevice(t *testing.T) {
	r := newRig(t)
	elsewhere := enforce.Guard{Slot: 1, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}
	check.Is(t, attachGuard(r.Kernel, elsewhere), enforce.ErrPinned, "got")
	equal(t, "first one attached", r.attached(), true)
	r.pod.deleteLink("eth0")
	equal(t, "attached to a device gone", r.attached(), false)
	check.OK(t, attachGuard(r.Kernel, elsewhere))
	equal(t, "attached", r.attached(), true)
}

// Two pods may have the same ifindex, each in its namespace.
func TestEqualIfindexesOfTwoPodsAreToldApart(t *testing.T) {
	r := newRig(t)
	netns := newNetNS(t, "twin")
	twin, pod := netns.index("lo"), r.pod.index("lo")
	check.Must(t, twin == pod, "lo has ifindex %d and %d", twin, pod)
	check.OK(t, attachGuard(r.Kernel, enforce.Guard{Slot: 2, Segment: r.parent, NetNS: r.pod.path, Interface: "lo"}))
	check.Is(t, attachGuard(r.Kernel, enforce.Guard{Slot: 2, Segment: r.parent, NetNS: netns.path, Interface: "lo"}), enforce.ErrPinned, "got")
}

func TestAttachingToNoDevice(t *testing.T) {
	r := newRig(t)
	check.Is(t, attachGuard(r.Kernel, enforce.Guard{Slot: 2, Segment: r.parent, NetNS: r.pod.path, Interface: "eth7"}), ErrNoDevice, "guard: got")
	equal(t, "slot", check.Value(r.slot(2))(t), observerSlot{})
	check.Is(t, attach.InNetNS(r.node.path, func() error { return r.AttachObserver(99999) }), ErrNoDevice, "observer: got")
}

func TestDetachingAGuardWorksTwice(t *testing.T) {
	r := newRig(t)
	check.OK(t, r.KillSlot(1))
	for range 2 {
		check.OK(t, r.DetachGuard(1))
		equal(t, "attached", r.attached(), false)
		equal(t, "dead", check.Value(r.SlotDead(1))(t), false)
	}
}

func TestSweepFreesTheSlotsOfGoneDevices(t *testing.T) {
	r := newRig(t)
	check.OK(t, attachGuard(r.Kernel, enforce.Guard{Slot: 2, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}))
	check.OK(t, r.KillSlot(1))
	check.None(t, check.Value(r.SweepGuards())(t), "swept while alive")
	r.pod.deleteLink("eth0")
	check.List(t, check.Value(r.SweepGuards())(t), []uint32{1}, "swept")
	equal(t, "guarded", len(check.Value(r.Guarded())(t)), 1)
	equal(t, "dead", check.Value(r.SlotDead(1))(t), false)
}

func TestAGuardStaysOnADeviceThatIsRenamedOrBounced(t *testing.T) {
	r := newRig(t)
	links, eth0 := r.pod.Links(), r.pod.device("eth0")
	check.OK(t, errors.Join(links.LinkSetDown(eth0), links.LinkSetName(eth0, "net1"), links.LinkSetUp(eth0)))
	equal(t, "attached", r.attached(), true)
}

func TestObserverOfAParentThatIsGone(t *testing.T) {
	r := newRig(t)
	r.wire.unplug("node") // its peer goes with it
	r.node.do(func() error {
		all, err := r.ObserversAttached()
		equal(t, "attached", all[r.parent], false)
		return err
	})
	check.OK(t, r.Close())
	r.Kernel = openKernel(t, r.dir) // a dead pin is no obstacle
}

func TestParentsThatAreGoneLeaveRoomForOthers(t *testing.T) {
	r := newRig(t)
	const gone = 1 << 20 // no ifindex here is so great
	for i := range r.maps.Parents.MaxEntries() - 1 {
		check.OK(t, r.maps.Parents.Put(gone+i, observerParent{}))
		check.OK(t, r.maps.Hearing.Put(gone+i, uint64(1)))
	}
	check.OK(t, r.node.Links().LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "p1"}, PeerName: "p2"}))
	second := r.node.index("p1")
	r.node.do(func() error { return r.AttachObserver(second) })
	r.node.do(func() error {
		all, err := r.ObserversAttached()
		equal(t, "the first is observed", all[r.parent], true)
		equal(t, "the second is observed", all[second], true)
		return err
	})
	for _, segment := range []uint32{gone, uint32(r.parent), uint32(second)} {
		var p observerParent
		equal(t, "known", check.Value(lookup(r.maps.Parents, segment, &p))(t), segment != gone)
	}
}

// A node that is out of files must not give up hearing a segment for it.
func TestAParentThatCannotBeAskedIsNotGone(t *testing.T) {
	r := newRig(t)
	r.node.do(func() error {
		var files unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
			return err
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: files.Max}); err != nil {
			return err
		}
		err := r.AttachObserver(r.parent)
		check.That(t, err != nil && !errors.Is(err, ErrNoDevice), "got %v", err)
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
	})
}
