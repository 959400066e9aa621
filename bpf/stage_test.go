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
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
	lan "github.com/fenceline/fenceline/test/network"
)

// stagedRig is a rig whose guard is staged and not pinned. Its address is fenced, and its observer is off: what a
// zombie sends is the guard's to drop.
func stagedRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := newRig(t)
	check.OK(t, r.Guards.Detach(1))
	r.reopen(o)
	r.acks(200)
	r.unobserve(r.parent)
	check.OK(t, r.Guards.Stage(r.guard()))
	return r
}

// on opens the guard's device.
func (r *rig) on() *attach.Device {
	r.t.Helper()
	dev := check.Value(attach.OpenDevice(r.pod.path, "eth0"))(r.t)
	r.t.Cleanup(dev.Close)
	return dev
}

// filters are the directions in which the device has filters.
func (r *rig) filters(slot uint32) (all []string) {
	r.t.Helper()
	dev := r.on()
	for _, d := range attach.Directions {
		if check.Value(dev.HasFilter(d, slot))(r.t) {
			all = append(all, d.Name)
		}
	}
	return all
}

// links are the directions in which the device has tcx programs.
func (r *rig) links() (all []string) {
	r.t.Helper()
	eth0 := r.pod.index("eth0")
	r.pod.do(func() error {
		for _, d := range attach.Directions {
			chain, err := link.QueryPrograms(link.QueryOptions{Target: eth0, Attach: d.Hook})
			if err != nil {
				return err
			}
			if len(chain.Programs) > 0 {
				all = append(all, d.Name)
			}
		}
		return nil
	})
	return all
}

func (r *rig) sits(what string, filters, links []string) {
	r.t.Helper()
	check.List(r.t, r.filters(1), filters, "%s: filters", what)
	check.List(r.t, r.links(), links, "%s: links", what)
}

var both = []string{"egress", "ingress"}

// leaks sends a frame from the guarded address, one from another, and tells which came.
func (r *rig) leaks() (guarded, other bool) {
	r.t.Helper()
	s, mac := r.ext.socket("p0", unix.ETH_P_IP), r.pod.mac("eth0")
	zombie := r.pod.socket("eth0", unix.ETH_P_IP)
	zombie.send(eth(broadcast, mac, etherIPv4, ipv4(addr4, far4)))
	zombie.send(eth(broadcast, mac, etherIPv4, ipv4(nobody4, far4)))
	// The sibling's frame takes the same way: when it has come, the others have, or never will.
	r.sibling.socket("eth0", unix.ETH_P_IP).send(eth(broadcast, r.sibling.mac("eth0"), etherIPv4, ipv4(other4, far4)))
	frames, ok := s.until(ipFrom(other4))
	equal(r.t, "marker came", ok, true)
	return slices.ContainsFunc(frames, ipFrom(addr4)), slices.ContainsFunc(frames, ipFrom(nobody4))
}

func TestAStagedGuardEnforcesLikeAPinnedOne(t *testing.T) {
	r := stagedRig(t, Options{})
	r.sits("staged", both, nil)
	equal(t, "attached", r.attached(), true)
	guarded, other := r.leaks()
	equal(t, "fenced address leaks", guarded, false)
	equal(t, "another address comes", other, true)
	check.OK(t, r.Guards.Kill(1))
	_, other = r.leaks()
	equal(t, "anything leaks from a dead slot", other, false)

	check.OK(t, r.Guards.Pin(r.guard()))
	r.sits("pinned", nil, both)
	equal(t, "attached", r.attached(), true)
	equal(t, "dead slot stays dead", check.Value(r.Slots.Dead(1))(t), true)
	check.OK(t, r.Guards.Pin(r.guard()))
	r.sits("pinned twice", nil, both)
}

// The zombie talks all the time while its guard moves again and again: not one frame may leave.
func TestNoFramePassesWhileAGuardMoves(t *testing.T) {
	r := stagedRig(t, Options{})
	s := r.ext.socket("p0", unix.ETH_P_IP)
	mac := r.pod.mac("eth0")
	zombie := r.pod.socket("eth0", unix.ETH_P_IP)
	stop := zombie.chatter(eth(broadcast, mac, etherIPv4, ipv4(addr4, far4)))
	const moves = 25
	for range moves {
		check.OK(t, r.Guards.Pin(r.guard()))
		// Back to the filters, which are there before the links go.
		programs := guardOf(t, r.Kernel, r.guard())
		dev := r.on()
		check.OK(t, dev.AddFilters(1, programs))
		check.OK(t, r.pins(1).Remove())
		programs.Close()
	}
	sent := stop()
	zombie.send(eth(broadcast, mac, etherIPv4, ipv4(nobody4, far4)))
	equal(t, "zombie's frames came", s.hears(ipFrom(addr4), ipFrom(nobody4)), false)
	check.That(t, sent >= 100*moves, "only %d frames sent", sent)
}

func TestAMoveThatTheAgentDidNotLiveToFinish(t *testing.T) {
	for name, before := range map[string]func(*rig){
		"before the first link": func(*rig) {},
		"between the two links": func(r *rig) {
			r.restage()
			check.OK(r.t, attach.Detach(r.pins(1).Path(attach.Directions[1])))
			check.OK(r.t, os.Remove(r.pins(1).Path(attach.Directions[1])))
		},
		"before the filters were removed": (*rig).restage,
	} {
		t.Run(name, func(t *testing.T) {
			r := stagedRig(t, Options{})
			before(r)
			check.OK(t, r.Guards.Kill(1))
			r.reopen(Options{})
			_, other := r.leaks()
			equal(t, "the dead slot leaks after the crash", other, false)
			check.OK(t, r.Guards.Pin(r.guard()))
			r.sits("taken up", nil, both)
			equal(t, "dead slot stays dead", check.Value(r.Slots.Dead(1))(t), true)
		})
	}
}

// restage pins the guard, and puts the filters back on its device.
func (r *rig) restage() {
	r.t.Helper()
	check.OK(r.t, r.Guards.Pin(r.guard()))
	programs := guardOf(r.t, r.Kernel, r.guard())
	defer programs.Close()
	check.OK(r.t, r.on().AddFilters(1, programs))
}

func (r *rig) pins(slot uint32) attach.Pins { return r.Kernel.dir.Guard(slot) }

func TestADeviceThatGoesWhileItsGuardIsStaged(t *testing.T) {
	for name, tc := range map[string]func(r *rig){
		"the device":                       func(r *rig) { r.pod.deleteLink("eth0") },
		"the namespace":                    func(r *rig) { r.pod.remove() },
		"the namespace, but for its file":  func(r *rig) { check.OK(r.t, errors.Join(r.pod.Close(), unix.Unmount(r.pod.path, unix.MNT_DETACH))) },
		"the device, to another namespace": func(r *rig) { r.move(r.pod, lan.New(r.t, "elsewhere")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := stagedRig(t, Options{})
			tc(r)
			check.Is(t, r.Guards.Pin(r.guard()), ErrNoDevice, "pinned")
			equal(t, "attached", r.attached(), false)
			check.List(t, r.sweepsIn(time.Minute), []uint32{1}, "swept")
			check.OK(t, r.Guards.Stage(Guard{Slot: 1, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}))
			equal(t, "attached to another device", r.attached(), true)
		})
	}
}

// move moves the pod's device.
func (r *rig) move(from, to interface{ Path() string }) {
	r.t.Helper()
	target := check.Value(os.Open(to.Path()))(r.t)
	defer target.Close()
	check.OK(r.t, attach.InNetNS(from.Path(), func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(l, int(target.Fd()))
	}))
}

func TestAStagedGuardIsNotSweptAndKeepsItsSlot(t *testing.T) {
	r := stagedRig(t, Options{})
	equal(t, "swept", len(check.Value(r.Guards.Sweep())(t)), 0)
	elsewhere := Guard{Slot: 1, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}
	check.Is(t, r.Guards.Stage(elsewhere), ErrPinned, "got")
	r.sits("refused elsewhere", both, nil)
}

func TestDetachingAStagedGuard(t *testing.T) {
	r := stagedRig(t, Options{})
	for range 2 {
		check.OK(t, r.Guards.Detach(1))
		r.sits("detached", nil, nil)
	}
	check.OK(t, r.Guards.Pin(r.guard())) // its move was under way
	r.sits("a slot that was freed", nil, nil)
}

// An agent that died before the move has left nothing but the slot: whoever was killed does not come back to life.
func TestAGuardThatIsStagedAgainKeepsItsSlotDead(t *testing.T) {
	r := stagedRig(t, Options{})
	check.OK(t, r.Guards.Kill(1))
	check.OK(t, r.Guards.Stage(r.guard()))
	equal(t, "dead", check.Value(r.Slots.Dead(1))(t), true)
	check.OK(t, r.Guards.Detach(1))
	check.OK(t, r.Guards.Stage(r.guard()))
	equal(t, "dead after it was detached", check.Value(r.Slots.Dead(1))(t), false)
}

// A slot is killed, or gets other sources, while its guard is staged.
func TestAStageKeepsWhatChangedMeanwhile(t *testing.T) {
	k := newKernel(t)
	g := Guard{Slot: 1, Segment: testSegment}
	check.OK(t, k.Slots.write(1, slotOf(g)))
	before := check.Value(k.Slots.read(1))(t)
	check.OK(t, k.Sources.Set(1, guarded(SourcesEnforce)))
	check.OK(t, k.Guards.Kill(1))
	staged := g.record(7)
	for name, record := range map[string]observerSlot{"staged": staged, "rolled back": before, "rolled back to a free slot": {}} {
		check.OK(t, k.Guards.change(1, record))
		after := check.Value(k.Slots.read(1))(t)
		equal(t, name+": dead", after.Status, slotDead)
		equal(t, name+": sources", after.Sources, guarded(SourcesEnforce).bits())
		equal(t, name+": MAC", after.Mac.Part, macLayout(podMAC))
	}
}

// An ADD that is repeated has two slots on one interface for a moment: the dead one goes, the new one stays.
func TestTwoSlotsStagedOnOneDeviceAreApart(t *testing.T) {
	r := stagedRig(t, Options{})
	check.OK(t, r.Guards.Kill(1))
	second := r.guard()
	second.Slot = 2
	check.OK(t, r.Guards.Stage(second))
	check.OK(t, r.Guards.Detach(1))
	r.sits("the first", nil, nil)
	check.List(t, r.filters(2), both, "the second has filters")
}

// The qdisc of filters would switch a device off for a moment.
func TestTheGuardOfALivingDeviceIsPinnedAtOnce(t *testing.T) {
	r := stagedRig(t, Options{})
	check.OK(t, r.Guards.Detach(1))
	living := r.guard()
	living.Living = true
	check.OK(t, r.Guards.Stage(living))
	r.sits("living", nil, both)
	equal(t, "attached", r.attached(), true)
	check.OK(t, r.Guards.Pin(living))
	r.sits("pinned", nil, both)
	check.OK(t, r.Guards.Detach(1))
	r.sits("detached", nil, nil)
}

func TestWithoutTCXTheGuardOfALivingDeviceIsStaged(t *testing.T) {
	r := stagedRig(t, Options{NoTCX: true})
	living := r.guard()
	living.Living = true
	check.OK(t, r.Guards.Stage(living))
	r.sits("living", both, nil)
	equal(t, "attached", r.attached(), true)
}

func TestWithoutTCXAGuardStaysStaged(t *testing.T) {
	r := stagedRig(t, Options{NoTCX: true})
	check.OK(t, r.Guards.Pin(r.guard()))
	check.OK(t, attachGuard(r.Kernel, r.guard()))
	r.sits("attached", both, nil)
	equal(t, "attached", r.attached(), true)
	guarded, other := r.leaks()
	equal(t, "fenced address leaks", guarded, false)
	equal(t, "another address comes", other, true)
	check.None(t, check.Value(r.Guards.Sweep())(t), "swept while alive")

	dev := r.on()
	check.OK(t, attach.InNetNS(r.pod.path, func() error {
		return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: dev.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}})
	}))
	equal(t, "attached without its qdisc", r.attached(), false)
	check.OK(t, attachGuard(r.Kernel, r.guard()))
	equal(t, "attached again", r.attached(), true)

	// The next agent may have tcx: the kernel was upgraded, or the option is gone.
	r.reopen(Options{})
	check.OK(t, r.Guards.Pin(r.guard()))
	r.sits("moved", nil, both)
}

func TestOthersFiltersStay(t *testing.T) {
	r := stagedRig(t, Options{})
	dev := r.on()
	programs := guardOf(t, r.Kernel, r.guard())
	defer programs.Close()
	other := dev.Filter(attach.Directions[0], attach.GuardFilter, 7, programs[attach.Directions[0].Name].FD())
	other.Name = "somebody's"
	check.OK(t, attach.InNetNS(r.pod.path, func() error { return netlink.FilterAdd(other) }))
	check.OK(t, r.Guards.Pin(r.guard()))
	r.sits("moved", nil, both)
	check.OK(t, dev.RemoveFilter(attach.Directions[0], attach.GuardFilter, 1)) // the pod was faster
	equal(t, "filters left", len(check.Value(dev.Filters(attach.Directions[0]))(t)), 1)
}

// An ADD is repeated on the interface for which an agent died in the middle of it: its dead guard goes, or it would
// drop what the next one lets pass.
func TestWithoutTCXAStageOfAnAgentBeforeIsDetached(t *testing.T) {
	r := stagedRig(t, Options{NoTCX: true})
	r.reopen(Options{NoTCX: true})
	check.OK(t, r.Guards.Kill(1))
	check.OK(t, r.Guards.Pin(r.guard()))
	second := r.guard()
	second.Slot = 2
	check.OK(t, r.Guards.Stage(second))
	check.OK(t, r.Leases.Install(r.key, Lease{Token: 300, Network: network, Slot: 2, MAC: r.pod.mac("eth0")}))
	check.OK(t, r.Guards.Detach(1))
	r.sits("the first", nil, nil)
	guarded, _ := r.leaks()
	equal(t, "the address of the second comes", guarded, true)
}

func TestAGuardThatCannotBeSweptKeepsNoOther(t *testing.T) {
	r := newRig(t)
	check.OK(t, attachGuard(r.Kernel, Guard{Slot: 2, Segment: r.parent, NetNS: r.sibling.path, Interface: "eth0"}))
	foreign := r.Kernel.dir.Guard(1).Path(attach.Directions[0])
	check.OK(t, os.Remove(foreign))
	m := check.Value(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}))(t)
	t.Cleanup(func() { check.OK(t, errors.Join(os.Remove(foreign), m.Close())) })
	check.OK(t, m.Pin(foreign))
	r.sibling.deleteLink("eth0")
	swept, err := r.Guards.Sweep()
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
			check.OK(t, r.Guards.Kill(1))
			tc.end(r)
			check.OK(t, r.Leases.Remove(r.key))
			r.reopen(Options{})
			check.None(t, check.Value(r.Guards.Sweep())(t), "swept while the device lives")
			equal(t, "dead", check.Value(r.Slots.Dead(1))(t), true)
			guarded, other := r.leaks()
			equal(t, "anything leaks", guarded || other, false)

			r.pod.deleteLink("eth0")
			check.List(t, r.sweepsIn(time.Minute), []uint32{1}, "swept once the device is gone")
			check.None(t, check.Value(r.Kernel.dir.Guards())(t), "pins are left of slots")
			equal(t, "dead once swept", check.Value(r.Slots.Dead(1))(t), false)
		})
	}
}

// sweepsIn sweeps until something is swept: the kernel lets the programs of filters go in its own time.
func (r *rig) sweepsIn(limit time.Duration) (swept []uint32) {
	r.t.Helper()
	for tick, end := time.NewTicker(10*time.Millisecond), time.Now().Add(limit); len(swept) == 0 && time.Now().Before(end); <-tick.C {
		swept = check.Value(r.Guards.Sweep())(r.t)
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
			swept := check.Value(r.Guards.Sweep())(r.t)
			check.Must(r.t, slices.Equal(swept, []uint32{1}), "swept %v", swept)
		}},
		{"its device went before the guard came", func(r *rig) {
			check.OK(r.t, r.Guards.Detach(1))
			r.pod.deleteLink("eth0")
			err := r.Guards.Stage(r.guard())
			check.Must(r.t, errors.Is(err, ErrNoDevice), "got %v", err)
		}},
		{"no guard was ever asked for", func(r *rig) { check.OK(r.t, r.Guards.Detach(1)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			tc.before(r)
			check.OK(t, r.Guards.Kill(1))
			check.List(t, r.sweepsIn(time.Minute), []uint32{1}, "swept")
			equal(t, "dead", check.Value(r.Slots.Dead(1))(t), false)
		})
	}
}

// A process that does not end keeps its namespace, and the device in it, when the runtime has removed the name.
func TestAStagedGuardWhoseNamespaceHasLostItsNameIsNotSwept(t *testing.T) {
	r := stagedRig(t, Options{NoTCX: true})
	check.OK(t, r.Guards.Kill(1))
	check.OK(t, r.Leases.Remove(r.key))
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
	check.List(t, r.sweepsIn(time.Minute), []uint32{1}, "swept once the device is gone")
}
