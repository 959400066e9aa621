// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/internal/frames"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/must"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// lateLimit is the time after the ack in which a frame of the zombie may still arrive. All clocks
// are of one machine, but an emulated one is slow.
const lateLimit = 100 * time.Millisecond

// A pod on a VF runs on while its agent is dead and its node is cut off from the API server. Another
// host takes its address. The guard in the pod verifies the claim and acks. No frame of the pod
// follows, not even unicast to the VF beside it.
func TestGuestAZombieOnAVFIsFenced(t *testing.T) {
	c := vf.New(t, 2)
	c.StartController()
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			one, others := f.pool(c, 20, 20), f.pool(c, 30, 39)
			p := podsOf(c, vf.SRIOV, vf.Delegated)
			dark := c.Nodes[0]
			zombie, beside := p.add(t, 1, 0, f.wants(one)), p.add(t, 1, 1, f.wants(others))
			far := p.add(t, 2, 1, f.wants(others))
			p.reach(t, zombie, beside)
			p.reach(t, zombie, far)

			ear, shout := listen(t, beside.Namespace, zombie), newShout(t, zombie, beside)
			check.Eventually(t, limit, "frames of the zombie at the VF beside", func() error { return ear.heardSince(time.Time{}) })
			dark.ShutAPI(true)
			begun := time.Now()
			check.OK(t, errors.Join(dark.Fall(t.Context()), zombie.Outlive(t.Context())))
			next := p.begin(t, 2, 0, f.wants(one))
			check.Must(t, next.Addr == zombie.Addr, "the next pod has %s, want %s", next.Addr, zombie.Addr)

			about := capture.About(capture.After(c.Frames.Frames(), begun), zombie.Addr)
			claims, acks := capture.Of(about, "claim"), capture.From(capture.Of(about, "ack"), zombie.MAC)
			check.Must(t, len(claims) != 0 && len(acks) != 0, "%d claims and %d acks of the VF, want some: %v", len(claims), len(acks), about)
			// Its frames would pass neither the guard nor anything else that the node sees.
			check.OK(t, zombie.Do(func() error {
				socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
				check.OK(t, err)
				check.Is(t, unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1), unix.EPERM, "a socket that skips the guard, without an agent:")
				return unix.Close(socket)
			}))
			fenced := acks[0].Time.Add(lateLimit)
			shout.more(t, 500)
			check.That(t, ear.heardSince(fenced) != nil, "the VF beside still hears the zombie")
			late := capture.From(capture.SpokenFor(capture.After(c.Frames.Frames(), fenced), zombie.Addr), zombie.MAC)
			check.None(t, late, "frames of the zombie that leave its host:")
			p.reach(t, far, next)
			p.reach(t, beside, next)
			shout.stop()
			dark.ShutAPI(false)
			check.OK(t, dark.Rise(t.Context()))
			p.removeAll(t, zombie, beside, far, next)
		})
	}
}

// The agent of a zombie on a VF lives, cut off from the API server. After another host has taken the
// address, the PF cuts off the VF too: nothing reaches the VF beside it, although all programs of
// the node are gone. The VF serves the next pod at once.
func TestGuestAPFCutsAFencedVFOff(t *testing.T) {
	c := vf.New(t, 2)
	c.StartController()
	c.NamedPool("one", "10.66.0.0/24", "10.66.0.20")
	c.NamedPool("others", "10.66.0.0/24", "10.66.0.30-10.66.0.39")
	p, dark, host := podsOf(c, vf.SRIOV, vf.Delegated), c.Nodes[0], c.LAN.Hosts[0]
	zombie, beside := p.add(t, 1, 0, nodes.Wants("one")), p.add(t, 1, 1, nodes.Wants("others"))
	p.reach(t, zombie, beside)
	dark.ShutAPI(true)
	check.OK(t, errors.Join(dark.Report(t.Context(), corev1.ConditionUnknown), zombie.Outlive(t.Context())))
	next := p.begin(t, 2, 0, nodes.Wants("one"))
	isCut := func() bool { return cutOff(t, host) }
	check.Becomes(t, limit, "the PF to switch the VF off", isCut)

	check.OK(t, dark.KillAgent())
	check.OK(t, dark.RemovePins())
	check.OK(t, removeClsact(zombie))
	ear, shout := listen(t, beside.Namespace, zombie), newShout(t, zombie, beside)
	shout.more(t, 500)
	check.That(t, ear.heardSince(time.Time{}) != nil, "the VF beside hears the zombie")
	p.reach(t, beside, next)
	shout.stop()

	dark.ShutAPI(false)
	check.OK(t, dark.Rise(t.Context()))
	p.remove(t, zombie)
	check.Becomes(t, limit, "the PF to switch the VF on", func() bool { return !isCut() })
	after := p.add(t, 1, 0, nodes.Wants("others"))
	p.reach(t, after, beside)
	p.reach(t, after, next)
	p.removeAll(t, beside, next, after)
}

// cutOff reports whether the PF has switched its first VF off.
func cutOff(t *testing.T, h *vf.Host) bool {
	t.Helper()
	info := pf(t, h).Attrs().Vfs[0]
	return info.Vlan != 0 || info.LinkState == nl.IFLA_VF_LINK_STATE_DISABLE
}

// removeClsact removes the filters of a pod's guard, as a container with CAP_NET_ADMIN can do on a
// kernel without tcx.
func removeClsact(s *nodes.Sandbox) error {
	index, err := s.Index(namespaces.PodInterface)
	if err != nil {
		return err
	}
	err = asPod(s.Namespace, func() error { return netlink.QdiscDel(clsact(index)) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return nil // the guard was in tcx links
	}
	return err
}

// shout sends from the address of a pod again and again: announcements to all hosts and to one
// neighbour, and packets to the neighbour.
type shout struct {
	sent atomic.Int64
	stop func()
}

func newShout(t *testing.T, from, to *nodes.Sandbox) *shout {
	t.Helper()
	all := check.Value(frames.Announce(from.MAC, from.Addr))(t)
	for _, f := range slices.Clone(all) {
		all = append(all, slices.Concat(to.MAC, f[len(to.MAC):]))
	}
	all = append(all, packet(to.MAC, from.MAC, from.Addr, to.Addr))
	socket := check.Value(packets(from.Namespace))(t)
	ctx, cancel := context.WithCancel(context.Background())
	s := &shout{}
	var sending sync.WaitGroup
	sending.Go(func() {
		for ctx.Err() == nil {
			for _, f := range all {
				_, _ = unix.Write(socket, f) // ENOBUFS, if a hook drops it
			}
			s.sent.Add(1)
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 2e6}, nil)
		}
	})
	s.stop = sync.OnceFunc(func() {
		cancel()
		sending.Wait()
		unix.Close(socket)
	})
	t.Cleanup(s.stop)
	return s
}

// more waits until so many more rounds are sent.
func (s *shout) more(t *testing.T, rounds int64) {
	t.Helper()
	until := s.sent.Load() + rounds
	check.Becomes(t, limit, "more frames", func() bool { return s.sent.Load() >= until })
}

// ear records when a pod's interface last received a frame from the MAC of another pod.
type ear struct{ at atomic.Int64 }

func listen(t *testing.T, ns *network.Namespace, of *nodes.Sandbox) *ear {
	t.Helper()
	e := &ear{}
	hear(t, ns, func(frame []byte) {
		if len(frame) >= 12 && slices.Equal(frame[6:12], of.MAC) {
			e.at.Store(time.Now().UnixNano())
		}
	})
	return e
}

// hear calls each with every frame that a pod's interface receives, until the test ends.
func hear(t *testing.T, ns *network.Namespace, each func(frame []byte)) {
	t.Helper()
	socket := check.Value(packets(ns))(t)
	check.OK(t, unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	var hearing sync.WaitGroup
	hearing.Go(func() {
		frame := make([]byte, 2048)
		for t.Context().Err() == nil {
			if n, _, err := unix.Recvfrom(socket, frame, 0); err == nil {
				each(frame[:n])
			}
		}
		unix.Close(socket)
	})
	t.Cleanup(hearing.Wait)
}

func (e *ear) heardSince(t time.Time) error {
	if last := time.Unix(0, e.at.Load()); e.at.Load() == 0 || !last.After(t) {
		return fmt.Errorf("the last frame came at %s", last)
	}
	return nil
}

// packets opens a socket for all frames of a pod's interface.
func packets(ns *network.Namespace) (socket int, err error) {
	defer must.Catch(&err)
	index := must.Value(ns.Index(namespaces.PodInterface))
	err = ns.Do(func() (err error) {
		socket, err = packetsOf(index)
		return err
	})
	return socket, err
}

// packetsOf opens a socket for all frames of an interface of the calling thread's namespace.
func packetsOf(index int) (socket int, err error) {
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // network byte order
	if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
		return 0, err
	}
	return socket, unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
}
