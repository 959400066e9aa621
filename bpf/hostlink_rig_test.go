// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/bpf/enforce"
	"github.com/fenceline/fenceline/test/check"
)

// The two ends of a host link.
const (
	nodeEnd = "flh0"
	podEnd  = "host-eth0"
)

// linkRig is a rig whose pod has a host link to its node.
type linkRig struct {
	*rig
}

func newLinkRig(t *testing.T, o Options) *linkRig {
	t.Helper()
	r := &linkRig{rig: newRigWith(t, o)}
	check.OK(t, r.InstallLease(r.key6(), r.lease(100)))
	check.OK(t, r.InstallLease(Key{Segment: uint32(r.parent), Addr: other4},
		Lease{Token: 100, Network: network, Slot: 2, MAC: r.sibling.mac("eth0")}))
	r.plugLink()
	r.guardLink(1)
	return r
}

func (r *linkRig) key6() Key { return Key{Segment: uint32(r.parent), Addr: addr6} }

// plugLink makes the host link, without any guard.
func (r *linkRig) plugLink() {
	r.t.Helper()
	check.OK(r.t, r.node.AddPair(nodeEnd, r.pod.Namespace, podEnd))
	r.node.up(nodeEnd)
	r.pod.up(podEnd)
}

func (r *linkRig) guardLink(slot uint32) {
	r.t.Helper()
	r.node.do(func() error { return r.GuardLink(enforce.Guard{Slot: slot}, nodeEnd) })
}

func (r *linkRig) linkGuarded(slot uint32) (guarded bool) {
	r.t.Helper()
	r.node.do(func() (err error) {
		guarded, err = r.LinkGuarded(slot, nodeEnd)
		return err
	})
	return guarded
}

// onLink opens the node's end.
func (r *linkRig) onLink(fn func(*attach.Device) error) {
	r.t.Helper()
	r.node.do(func() error {
		dev, err := attach.OpenDevice("", nodeEnd)
		if err != nil {
			return err
		}
		defer dev.Close()
		return fn(dev)
	})
}

// linkFilters are the names of the filters on the node's end, in their order.
func (r *linkRig) linkFilters(dir attach.Direction) (names []string, ids []int) {
	r.t.Helper()
	r.onLink(func(dev *attach.Device) error {
		filters, err := dev.Filters(dir)
		for _, f := range filters {
			own := f.(*netlink.BpfFilter)
			names, ids = append(names, own.Name), append(ids, own.Id)
		}
		return err
	})
	return names, ids
}

// sweep sweeps as the agent does, in the node's namespace.
func (r *linkRig) sweep() (swept []uint32) {
	r.t.Helper()
	r.node.do(func() (err error) {
		swept, err = r.SweepGuards()
		return err
	})
	return swept
}

// leaves reports whether a frame of the pod comes out of the node's end. The programs see it before a socket of its
// protocol does.
func (r *linkRig) leaves(frame []byte) bool {
	r.t.Helper()
	return r.crosses(r.pod.socket(podEnd, 0), r.node.socket(nodeEnd, protocolOf(frame)), WhereGuardEgress, frame)
}

// enters reports whether a frame of the node comes to the pod.
func (r *linkRig) enters(frame []byte) bool {
	r.t.Helper()
	return r.crosses(r.node.socket(nodeEnd, 0), r.pod.socket(podEnd, protocolOf(frame)), WhereGuardIngress, frame)
}

// crosses sends a frame and waits until it has come or a program has counted a drop.
func (r *linkRig) crosses(from, to *socket, where Where, frame []byte) bool {
	r.t.Helper()
	before := r.drops(where)
	from.send(frame)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-tick.C {
		dropped := r.drops(where) > before
		if to.has(frame) {
			return true
		}
		if dropped {
			return false
		}
	}
	r.t.Fatal("the frame neither came nor was dropped within 10 s")
	return false
}

// drops counts the frames that one program has dropped.
func (r *linkRig) drops(where Where) (n uint64) {
	r.t.Helper()
	all := check.Value(r.Counters())(r.t)
	for _, why := range []Result{
		ResultFromPod, ResultDropFenced, ResultDropDead, ResultDropSlot, ResultDropMAC, ResultDropUnleased, ResultDropMalformed,
		ResultDropTagged, ResultDropBridge,
	} {
		n += all[Counter{where, why}]
	}
	return n
}

func protocolOf(frame []byte) int { return int(binary.BigEndian.Uint16(frame[12:])) }

// has reports whether a frame has come.
func (s *socket) has(frame []byte) bool {
	s.t.Helper()
	raw := check.Value(s.SyscallConn())(s.t)
	for {
		buf := make([]byte, 2048)
		var n int
		var failed error
		check.OK(s.t, raw.Read(func(fd uintptr) bool {
			n, _, failed = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
			return true
		}))
		if errors.Is(failed, unix.EAGAIN) {
			return false
		}
		check.OK(s.t, failed)
		if bytes.Equal(buf[:n], frame) {
			return true
		}
	}
}
