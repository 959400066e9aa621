// SPDX-License-Identifier: Apache-2.0

//go:build kernel && !notcx

package bpf

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
)

// What follows needs tcx, so kernels from 6.6 on.

// programs are the IDs of the programs on the guard's links.
func (r *rig) programs() map[string]ebpf.ProgramID {
	r.t.Helper()
	ids := map[string]ebpf.ProgramID{}
	for _, d := range attach.Directions {
		l := check.Value(link.LoadPinnedLink(r.Kernel.dir.Guard(1).Path(d), nil))(r.t)
		info := check.Value(l.Info())(r.t)
		check.OK(r.t, l.Close())
		ids[d.Name] = info.Program
	}
	return ids
}

func TestAttachingAGuardTwiceReplacesItsProgramsInPlace(t *testing.T) {
	r := newRig(t)
	before := r.programs()
	g := r.guard()
	g.Verify = true
	check.OK(t, attachGuard(r.Kernel, g))
	after := r.programs()
	for _, d := range attach.Directions {
		check.That(t, before[d.Name] != after[d.Name], "%s program was not replaced", d.Name)
	}
	equal(t, "flags", check.Value(r.Slots.read(1))(t).Flags, slotVerify)
}

func TestATornPairIsCompleted(t *testing.T) {
	r := newRig(t)
	check.OK(t, os.Remove(r.Kernel.dir.Guard(1).Path(attach.Directions[1])))
	equal(t, "attached", r.attached(), false)
	check.OK(t, attachGuard(r.Kernel, r.guard()))
	equal(t, "attached", r.attached(), true)
}

// The zombie talks all the time while the agent restarts again and again: not one frame may leave.
func TestReopeningLeavesNoGap(t *testing.T) {
	r := newRig(t)
	s := r.acks(200)
	r.unobserve(r.parent) // the guard alone
	before := r.programs()
	check.OK(t, r.Close())

	zombie := r.pod.socket("eth0", unix.ETH_P_IP)
	stop := zombie.chatter(eth(broadcast, r.pod.mac("eth0"), etherIPv4, ipv4(addr4, far4)))
	for range 20 {
		k := check.Value(Open(Options{Dir: r.dir}))(t)
		check.OK(t, k.Close())
	}
	sent := stop()
	check.That(t, sent >= 1000, "only %d frames sent", sent)
	zombie.send(eth(broadcast, r.pod.mac("eth0"), etherIPv4, ipv4(nobody4, far4)))
	equal(t, "zombie's frames came", s.hears(ipFrom(addr4), ipFrom(nobody4)), false)
	r.Kernel = openKernel(t, r.dir)
	for name, id := range r.programs() {
		check.That(t, id != before[name], "%s program was not replaced", name)
	}
}

// The agent says at its start which of the two ways it goes.
func TestTheKernelSaysAtOnceWhetherItHasTCX(t *testing.T) {
	for _, without := range []bool{false, true} {
		k := check.Value(Open(Options{Dir: bpffs(t), NoTCX: without}))(t)
		equal(t, "tcx", k.HasTCX(), !without)
		check.OK(t, k.Close())
	}
}

func TestObserverTakesTheHeadOfTheChainBack(t *testing.T) {
	r := newRig(t)
	attached := func() bool {
		t.Helper()
		all := in(r.node, r.Observers.Attached)
		equal(t, "observers", len(all), 1)
		return all[r.parent]
	}
	equal(t, "attached", attached(), true)
	equal(t, "programs of others", len(r.others()), 0)

	rude := rudeProgram(t)
	l := in(r.node, func() (link.Link, error) { return r.toHead(rude) })
	defer l.Close()
	equal(t, "attached behind another", attached(), false)
	names := r.others()
	check.That(t, len(names) == 1 && strings.HasPrefix(names[0], "ingress rude (ID "), "programs of others: %q", names)
	r.observe()
	equal(t, "programs of others behind ours", len(r.others()), 1)
	equal(t, "attached again", attached(), true)
	r.acks(200)
	for range 2 {
		r.unobserve(r.parent)
	}
	equal(t, "observers after detaching", len(in(r.node, r.Observers.Attached)), 0)
}

// toHead puts a program before the observer of the parent.
func (r *rig) toHead(p *ebpf.Program) (link.Link, error) {
	return link.AttachTCX(link.TCXOptions{Interface: r.parent, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
}

// The observer takes the head of the chain back with a new link before it gives up the old one. Who asks
// meanwhile must not be told of an observer of others.
func TestAnObserverThatMovesIsNoProgramOfOthers(t *testing.T) {
	r := newRig(t)
	rude := rudeProgram(t)
	// push moves rude to the head. A chain that grows while it is read cannot be read, so no look is under way.
	push := func() (link.Link, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.toHead(rude)
	}
	moved := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		r.node.do(func() error {
			for {
				names, err := r.Observers.Others(r.parent)
				if err != nil {
					return err
				}
				for _, name := range names {
					check.That(t, strings.HasPrefix(name, "ingress rude "), "%s is a program of others", name)
				}
				select {
				case <-moved:
					return nil
				default:
				}
			}
		})
	})
	for range 20 {
		r.node.do(func() error {
			l, err := push()
			if err != nil {
				return err
			}
			defer l.Close()
			return r.Observers.Attach(r.parent)
		})
	}
	close(moved)
	looks.Wait()
}

// A bond that its service makes again and again has another ifindex each time.
func TestAParentThatIsMadeAgainLeavesNoProgram(t *testing.T) {
	k, ns := newKernel(t), newNetNS(t, "node")
	for range 2 {
		ns.do(func() error {
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "p0"}, PeerName: "p1"}); err != nil {
				return err
			}
			return k.Observers.Attach(ns.index("p0"))
		})
		equal(t, "observers", len(check.Value(k.dir.Observers())(t)), 1)
		ns.deleteLink("p0")
	}
}
