// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
)

// What kernels before 6.6 do, shown on every kernel.

// acks judges that a claim fences the pod's address and is acknowledged. It returns the stranger's socket.
func (r *rig) acks(token uint64) *socket {
	r.t.Helper()
	s := r.ext.socket("p0", allProtocols)
	r.claim(s, token)
	s.expect("ack", protocol(etherClaim))
	return s
}

// observed reports whether the parent's observer is the first in both directions, and its numbers.
func (r *rig) observed() (attached bool, ids [2]uint32) {
	r.t.Helper()
	attached = in(r.node, r.Observers.Attached)[r.parent]
	return attached, in(r.node, func() ([2]uint32, error) { return r.Observers.Links(r.parent) })
}

// others are the programs of others in the observer's place.
func (r *rig) others() []string {
	r.t.Helper()
	return in(r.node, func() ([]string, error) { return r.Observers.Others(r.parent) })
}

func TestWithoutTCXAnObserverOutlivesItsAgent(t *testing.T) {
	r := newRigWith(t, Options{NoTCX: true})
	attached, before := r.observed()
	equal(t, "attached", attached, true)
	r.observe()
	_, again := r.observed()
	check.That(t, again == before, "attached again: %v, before %v", again, before)
	check.OK(t, r.Close())
	equal(t, "the zombie answers", r.answers(r.acks(200)), false)
	r.Kernel = openKernelWith(t, Options{Dir: r.dir, NoTCX: true})
	equal(t, "fenced when the agent is back", check.Value(r.Leases.Fenced(r.key))(t), true)

	for range 2 {
		r.unobserve(r.parent)
		attached, ids := r.observed()
		equal(t, "attached after detaching", attached, false)
		equal(t, "numbers after detaching", ids, [2]uint32{})
	}
}

func TestWithoutTCXAnObserverTakesTheHeadBack(t *testing.T) {
	r := newRigWith(t, Options{NoTCX: true})
	_, before := r.observed()
	rude := rudeProgram(t)
	r.node.do(func() error {
		dev, err := attach.OpenParent(r.parent)
		if err != nil {
			return err
		}
		defer dev.Close()
		return dev.PutFilter(dev.Filter(attach.Directions[1], "rude", 77, rude.FD()))
	})
	attached, _ := r.observed()
	equal(t, "attached behind another", attached, false)
	equal(t, "filters of others", len(r.others()), 1)
	r.observe()
	attached, after := r.observed()
	equal(t, "attached again", attached, true)
	equal(t, "egress stays", after[0], before[0])
	check.That(t, after[1] != before[1], "ingress, which was hidden, has the same number")
	r.acks(200)
}

// A plain ingress qdisc is in the place of clsact, and takes the filters of both directions for those of frames that come in.
func TestWithoutTCXAnIngressQdiscIsRefused(t *testing.T) {
	r := newRigWith(t, Options{NoTCX: true})
	r.unobserve(r.parent)
	attrs := netlink.QdiscAttrs{LinkIndex: r.parent, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	check.OK(t, r.node.Links().QdiscDel(&netlink.Clsact{QdiscAttrs: attrs}))
	check.OK(t, r.node.Links().QdiscAdd(&netlink.Ingress{QdiscAttrs: attrs}))
	r.node.do(func() error {
		check.Says(t, r.Observers.Attach(r.parent), "ingress qdisc", "add clsact")
		check.Says(t, r.Observers.Blocked(r.parent), "ingress qdisc")
		return nil
	})
	attached, _ := r.observed()
	equal(t, "attached", attached, false)
}

// The kernel has filters of one kind and protocol only at each priority.
func TestWithoutTCXAFilterInTheObserversPlaceIsNamed(t *testing.T) {
	r := newRigWith(t, Options{NoTCX: true})
	r.node.do(func() error {
		check.That(t, r.Observers.Blocked(r.parent) == nil, "blocked by its own filters")
		return nil
	})
	programs := check.Value(r.Observers.load(uint32(r.parent)))(t)
	defer programs.Close()
	r.unobserve(r.parent)
	r.node.do(func() error {
		dev, err := attach.OpenParent(r.parent)
		if err != nil {
			return err
		}
		defer dev.Close()
		other := dev.Filter(attach.Directions[1], "somebody's", 7, programs["ingress"].FD())
		other.Protocol = unix.ETH_P_IP
		return netlink.FilterAdd(other)
	})
	r.node.do(func() error {
		check.Says(t, r.Observers.Attach(r.parent), "priority 1", "greater number")
		check.Says(t, r.Observers.Blocked(r.parent), "priority 1", "greater number")
		return nil
	})
}

func TestWithoutTCXAnUpgradeReplacesTheObserversPrograms(t *testing.T) {
	r := newRigWith(t, Options{NoTCX: true})
	_, before := r.observed()
	r.acks(200)
	r.reopen(Options{NoTCX: true})
	attached, after := r.observed()
	equal(t, "attached", attached, true)
	for i, d := range attach.Directions {
		check.That(t, before[i] != after[i], "%s program was not replaced", d.Name)
	}
	r.acks(300)
}

func TestWithoutTCXRemovingLeavesNoFilter(t *testing.T) {
	r := newRigWith(t, Options{NoTCX: true})
	r.node.do(func() error {
		if err := r.Remove(); err != nil {
			return err
		}
		return attach.OnParent(r.parent, func(_ *attach.Device, d attach.Direction, filters []netlink.Filter) error {
			equal(t, d.Name+" filters", len(filters), 0)
			return nil
		})
	})
}
