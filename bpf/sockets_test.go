// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package bpf

import (
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/bpf/attach"
	"github.com/fenceline/fenceline/test/check"
)

func newSocketRig(t testing.TB) *rig {
	t.Helper()
	return newRigWith(t, Options{Cgroup: hierarchy(t)})
}

// sockopt is one option of a new socket.
type sockopt struct {
	family      int
	level, name int
	value       []byte
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

var (
	skips    = sockopt{unix.AF_PACKET, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, number(1)}
	queues   = sockopt{unix.AF_PACKET, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, number(0)}
	version  = sockopt{unix.AF_PACKET, unix.SOL_PACKET, unix.PACKET_VERSION, number(unix.TPACKET_V3)}
	memory   = sockopt{unix.AF_XDP, unix.SOL_XDP, unix.XDP_UMEM_REG, make([]byte, 32)}
	transmit = sockopt{unix.AF_XDP, unix.SOL_XDP, unix.XDP_TX_RING, number(64)}
)

// set returns the error of an option of a new socket in a namespace.
func (ns *netns) set(o sockopt) (err error) {
	ns.t.Helper()
	ns.onSocket(o.family, func(s int) error {
		err = unix.SetsockoptString(s, o.level, o.name, string(o.value))
		return nil
	})
	return err
}

// onSocket calls use with a new raw socket in a namespace. An error of use fails the test.
func (ns *netns) onSocket(family int, use func(s int) error) {
	ns.t.Helper()
	ns.do(func() error {
		s, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		return use(s)
	})
}

// set returns the error of an option of this socket.
func (s *socket) set(o sockopt) (err error) {
	s.t.Helper()
	raw := check.Value(s.SyscallConn())(s.t)
	check.OK(s.t, raw.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), o.level, o.name, string(o.value)) }))
	return err
}

func TestASocketThatSkipsTheGuardIsRefused(t *testing.T) {
	r := newSocketRig(t)
	for name, tc := range map[string]struct {
		sockopt
		guarded, elsewhere error
	}{
		"an AF_PACKET socket that skips the queue": {skips, unix.EPERM, nil},
		"an ordinary AF_PACKET socket":             {queues, nil, nil},
		"another option of AF_PACKET":              {version, nil, nil},
		"the memory of an AF_XDP socket":           {memory, unix.EPERM, unix.EINVAL},
		"the ring of an AF_XDP socket that sends":  {transmit, unix.EPERM, nil},
	} {
		t.Run(name, func(t *testing.T) {
			check.Is(t, r.pod.set(tc.sockopt), tc.guarded, "of the pod:")
			check.Is(t, r.node.set(tc.sockopt), tc.elsewhere, "of the node:")
			check.Is(t, r.sibling.set(tc.sockopt), tc.elsewhere, "of a pod without a guard:")
		})
	}
}

// A program sees the first bytes of a long option only, and must say so.
// Otherwise older kernels refuse it.
func TestALongOptionPasses(t *testing.T) {
	r := newSocketRig(t)
	device := sockopt{unix.AF_PACKET, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, append([]byte("eth0"), make([]byte, 2*4096)...)}
	check.OK(t, r.pod.set(device))
}

func TestSocketsAreGuardedOnEachKindOfInterface(t *testing.T) {
	for name, tc := range map[string]struct {
		options Options
		pod     func(node *netns, parent, name string) *netns
	}{
		"macvlan":              {Options{}, (*netns).pod},
		"macvlan, without tcx": {Options{NoTCX: true}, (*netns).pod},
		"veth":                 {Options{}, (*netns).veth},
	} {
		t.Run(name, func(t *testing.T) { refusesSockets(t, tc.options, tc.pod) })
	}
}

func refusesSockets(t *testing.T, o Options, pod func(node *netns, parent, name string) *netns) {
	o.Cgroup = hierarchy(t)
	r := newRigOf(t, o, pod)
	for _, o := range []sockopt{skips, memory, transmit} {
		check.Is(t, r.pod.set(o), unix.EPERM, "of the pod:")
	}
	check.OK(t, r.sibling.set(skips))
}

// veth makes a pod whose interface is one end of a pair.
func (ns *netns) veth(_, name string) *netns {
	ns.t.Helper()
	pod := newNetNS(ns.t, name)
	check.OK(ns.t, ns.AddPair("v-"+name, pod.Namespace, "eth0"))
	return pod
}

func TestSocketsStayGuardedWithoutTheAgent(t *testing.T) {
	r := newSocketRig(t)
	cgroup := hierarchy(t)
	pinned := func() *link.Info {
		l := check.Value(link.LoadPinnedLink(r.Kernel.dir.Sockets(), nil))(t)
		defer l.Close()
		return check.Value(l.Info())(t)
	}
	first := pinned()
	check.OK(t, r.Close())
	check.Is(t, r.pod.set(skips), unix.EPERM, "without an agent:")
	r.reopen(Options{Cgroup: cgroup})
	next := pinned()
	check.That(t, next.ID == first.ID && next.Program != first.Program, "the program of %+v was not replaced in place: %+v", first, next)
	check.Is(t, r.pod.set(skips), unix.EPERM, "with the next agent:")
	may := func() bool { return r.Sockets.MayBypass(1) }
	equal(t, "may bypass", may(), false)

	r.reopen(Options{})
	check.OK(t, r.pod.set(skips))
	check.Is(t, r.Sockets.Unguarded(), ErrSocketsOff, "switched off:")
	equal(t, "switched off, may bypass", may(), true)
	r.reopen(Options{Cgroup: cgroup})
	check.OK(t, r.pod.set(skips))
	equal(t, "switched on, before the agent has looked at the pod: may bypass", may(), true)
	equal(t, "had raw sockets", check.Value(r.Sockets.Refuse(1, r.pod.path))(t), false)
	check.Is(t, r.pod.set(skips), unix.EPERM, "switched on:")
	equal(t, "switched on, may bypass", may(), false)
	check.OK(t, r.Guards.Detach(1))
	check.OK(t, r.pod.set(skips))
}

// Nothing takes the option from a socket that has it.
func TestASocketFromBeforeKeepsItsOption(t *testing.T) {
	r := newRig(t)
	cgroup, heard := hierarchy(t), r.ext.socket("p0", allProtocols)
	past := r.bypass(r.pod, "eth0")
	r.reopen(Options{Cgroup: cgroup})
	equal(t, "had raw sockets", check.Value(r.Sockets.Refuse(1, r.pod.path))(t), true)
	check.Is(t, r.pod.set(skips), unix.EPERM, "a new socket:")
	stranger := arpFrame(remoteMAC, nobody4, far4)
	past.send(stranger)
	heard.expect("the frame of the old one", like(stranger))
	equal(t, "may bypass", r.Sockets.MayBypass(1), true)
	past.option(unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 0) // its program may give it up
	check.Is(t, past.set(skips), unix.EPERM, "once more:")
}

// The guard of the first interface has judged every socket that the second one finds.
func TestASecondInterfaceFindsSocketsThatWereJudged(t *testing.T) {
	r := newSocketRig(t)
	r.pod.socket("eth0", allProtocols)
	check.OK(t, r.node.AddMacvlan("p0", nil, r.pod.Namespace, "net1"))
	check.OK(t, attachGuard(r.Kernel, Guard{Slot: 2, Segment: r.parent, NetNS: r.pod.path, Interface: "net1"}))
	equal(t, "may bypass", r.Sockets.MayBypass(2), false)
	check.OK(t, r.Sockets.Allow(1, true))
	check.OK(t, r.Sockets.Allow(1, false))
	check.OK(t, r.Guards.Detach(2))
	check.OK(t, attachGuard(r.Kernel, Guard{Slot: 3, Segment: r.parent, NetNS: r.pod.path, Interface: "net1"}))
	equal(t, "after an allowance, may bypass", r.Sockets.MayBypass(3), true)
}

func TestAPodMayHaveSocketsThatEveryPoolOfItAllows(t *testing.T) {
	r := newSocketRig(t)
	check.OK(t, r.Sockets.Allow(1, true))
	check.OK(t, r.pod.set(skips))
	equal(t, "may bypass", r.Sockets.MayBypass(1), true)

	second := Guard{Slot: 2, Segment: r.parent, NetNS: r.pod.path, Interface: "net1"}
	check.OK(t, r.node.AddMacvlan("p0", nil, r.pod.Namespace, second.Interface))
	check.OK(t, attachGuard(r.Kernel, second))
	check.Is(t, r.pod.set(skips), unix.EPERM, "a second interface is strict:")
	check.OK(t, r.Sockets.Allow(2, true))
	check.OK(t, r.pod.set(skips))
	check.OK(t, r.Sockets.Allow(1, false))
	check.Is(t, r.pod.set(skips), unix.EPERM, "no longer allowed:")
	equal(t, "may still bypass", r.Sockets.MayBypass(1), true)
	check.OK(t, r.Guards.Detach(1))
	check.OK(t, r.pod.set(skips))
}

func TestANodeSaysThatItCannotGuardSockets(t *testing.T) {
	k := openKernelWith(t, Options{Dir: bpffs(t), Cgroup: t.TempDir()})
	check.Is(t, k.Sockets.Unguarded(), attach.ErrNoHierarchy, "got")
	equal(t, "may bypass", k.Sockets.MayBypass(1), true)
}
