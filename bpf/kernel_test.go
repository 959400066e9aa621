// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
	lan "github.com/fenceline/fenceline/test/network"
)

func TestOpenWantsABPFFS(t *testing.T) {
	check.Is(t, check.Err(Open(Options{Dir: t.TempDir()})), attach.ErrNotBPFFS, "got")
}

func TestEverythingIsThereAfterAReopen(t *testing.T) {
	dir := filepath.Join(bpffs(t), "fenceline")
	first := check.Value(Open(Options{Dir: dir}))(t)
	check.OK(t, first.Leases.Install(key(addr4), Lease{Token: 7, Network: network, Slot: 3, MAC: podMAC}))
	check.OK(t, first.Guards.Kill(3))
	check.OK(t, first.Close())

	k := openKernel(t, dir)
	l, ok, err := k.Leases.Lease(key(addr4))
	check.OK(t, err)
	equal(t, "lease", ok, true)
	equal(t, "token", l.Token, 7)
	equal(t, "slot dead", check.Value(k.Slots.Dead(3))(t), true)
}

func TestRemoveLeavesNothing(t *testing.T) {
	dir := filepath.Join(bpffs(t), "fenceline")
	k := check.Value(Open(Options{Dir: dir, Cgroup: hierarchy(t)}))(t)
	check.OK(t, k.Remove())
	equal(t, "entries", len(check.Value(os.ReadDir(dir))(t)), 0)
}

func TestSlotsOutOfRangeAreRefused(t *testing.T) {
	k := newKernel(t)
	for _, slot := range []uint32{0, MaxSlot + 1} {
		for name, err := range map[string]error{
			"kill":   k.Guards.Kill(slot),
			"detach": k.Guards.Detach(slot),
			"attach": attachGuard(k, Guard{Slot: slot, Interface: "lo"}),
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
			for _, m := range check.Value(attach.Dir(dir).OpenMaps(other))(t) {
				check.OK(t, m.Close())
			}
			check.Is(t, check.Err(Open(Options{Dir: dir})), attach.ErrLayout, "got")
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
	check.OK(t, b.programs.unload())
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
		return [...]int{check.Value(k.programs.loaded(false))(t), check.Value(k.programs.loaded(true))(t)}
	}
	equal(t, "after the first start", loaded(), [...]int{0, 0})
	check.OK(t, k.PrepareGuards())
	equal(t, "pods and VFs", loaded(), [...]int{2, 0})
	check.OK(t, programs().Delete(guardKey("egress", false)))
	check.OK(t, k.PrepareGuards())
	equal(t, "after half a load", loaded(), [...]int{2, 0})

	id := func() (id ebpf.ProgramID) {
		check.OK(t, programs().Lookup(guardKey("egress", false), &id))
		return id
	}
	old := id()
	check.OK(t, k.Close())
	k = openKernel(t, dir)
	equal(t, "after the next start", loaded(), [...]int{2, 0})
	check.That(t, id() != old, "the next agent runs the program %d of the last one", old)
}

func (r *rig) attached() bool {
	r.t.Helper()
	return check.Value(r.Guards.Attached(1))(r.t)
}

func TestASlotGuardsOneLivingDevice(t *testing.T) {
	r := newRig(t)
	elsewhere := Guard{Slot: 1, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}
	check.Is(t, attachGuard(r.Kernel, elsewhere), ErrPinned, "got")
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
	check.OK(t, attachGuard(r.Kernel, Guard{Slot: 2, Segment: r.parent, NetNS: r.pod.path, Interface: "lo"}))
	check.Is(t, attachGuard(r.Kernel, Guard{Slot: 2, Segment: r.parent, NetNS: netns.path, Interface: "lo"}), ErrPinned, "got")
}

func TestAttachingToNoDevice(t *testing.T) {
	r := newRig(t)
	check.Is(t, attachGuard(r.Kernel, Guard{Slot: 2, Segment: r.parent, NetNS: r.pod.path, Interface: "eth7"}), ErrNoDevice, "guard: got")
	equal(t, "slot", check.Value(r.Slots.read(2))(t), observerSlot{})
	check.Is(t, attach.InNetNS(r.node.path, func() error { return r.Observers.Attach(99999) }), ErrNoDevice, "observer: got")
}

func TestDetachingAGuardWorksTwice(t *testing.T) {
	r := newRig(t)
	check.OK(t, r.Guards.Kill(1))
	for range 2 {
		check.OK(t, r.Guards.Detach(1))
		equal(t, "attached", r.attached(), false)
		equal(t, "dead", check.Value(r.Slots.Dead(1))(t), false)
	}
}

func TestSweepFreesTheSlotsOfGoneDevices(t *testing.T) {
	r := newRig(t)
	check.OK(t, attachGuard(r.Kernel, Guard{Slot: 2, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}))
	check.OK(t, r.Guards.Kill(1))
	check.None(t, check.Value(r.Guards.Sweep())(t), "swept while alive")
	r.pod.deleteLink("eth0")
	check.List(t, check.Value(r.Guards.Sweep())(t), []uint32{1}, "swept")
	equal(t, "guarded", len(check.Value(r.Guards.guarded())(t)), 1)
	equal(t, "dead", check.Value(r.Slots.Dead(1))(t), false)
}

func TestAGuardStaysOnADeviceThatIsRenamedOrBounced(t *testing.T) {
	r := newRig(t)
	links, eth0 := r.pod.Links(), r.pod.device("eth0")
	check.OK(t, errors.Join(links.LinkSetDown(eth0), links.LinkSetName(eth0, "net1"), links.LinkSetUp(eth0)))
	equal(t, "attached", r.attached(), true)
}

func TestObserverOfAParentThatIsGone(t *testing.T) {
	r := newRig(t)
	check.OK(t, r.wire.ns.DeleteLink(lan.Port("node"))) // its peer goes with it
	equal(t, "attached", in(r.node, r.Observers.Attached)[r.parent], false)
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
	r.node.do(func() error { return r.Observers.Attach(second) })
	all := in(r.node, r.Observers.Attached)
	equal(t, "the first is observed", all[r.parent], true)
	equal(t, "the second is observed", all[second], true)
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
		err := r.Observers.Attach(r.parent)
		check.That(t, err != nil && !errors.Is(err, ErrNoDevice), "got %v", err)
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &files)
	})
}
