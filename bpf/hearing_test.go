// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"errors"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/test/check"
)

// both has the node reach the segment through a second parent.
func (r *rig) both() (second int) {
	r.t.Helper()
	spare := r.wire.plug("spare")
	node, err := os.Open(r.node.path)
	check.OK(r.t, err)
	defer node.Close()
	spare.do(func() error {
		l, err := netlink.LinkByName("p0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, "p1"), netlink.LinkSetNsFd(l, int(node.Fd())))
	})
	r.node.up("p1")
	second = r.node.index("p1")
	r.node.do(func() error { return r.AttachObserver(second) })
	return second
}

// R2: both may be cut off from all others.
func TestTwoParentsOfANodeOnOneSegmentAreNoEvidenceForEachOther(t *testing.T) {
	r := newRig(t)
	second := r.both()
	heard := func() bool {
		_, heard, err := r.Heard(uint32(r.parent))
		check.OK(t, err)
		return heard
	}
	in := r.node.socket("p0", allProtocols)
	out := r.node.socket("p1", etherClaim)
	f := claim.Frame{Network: network, Addr: far4, Token: 5}
	tell := func() {
		out.send(claimFrame(t, f, broadcast, r.node.mac("p1"), keyA))
		out.send(arpFrame(r.node.mac("p1"), far4, other4))
		if _, ok := in.until(arpFrom(far4)); !ok {
			t.Fatal("the marker did not come")
		}
	}
	tell()
	equal(t, "heard its own other parent", heard(), false)
	check.OK(t, r.Close())
	r.Kernel = openKernel(t, r.dir)
	tell()
	equal(t, "heard it after a restart", heard(), false)
	r.unobserve(second)
	tell()
	equal(t, "heard what is no parent any more", heard(), true)
}
