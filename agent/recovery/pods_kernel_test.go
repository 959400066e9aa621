// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package recovery_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
)

// The crash points of the plain tests once more, over the real kernel.
func TestARealKernelAfterAnAgentDiedAtAnyStepOfADD(t *testing.T) {
	rig := namespaces.New(t, 1)
	host := rig.Host(netip.MustParsePrefix("10.0.0.9/24"), nil)
	m := newMachine(t, rig.Node(1))
	n := fakenode.NewOn(t, m.open, fakenode.V4("10.0.0.2"))
	check.OK(t, n.Restored)
	n.API.Freed = func(l *v1alpha1.IPLease) {
		for _, e := range n.Attachments.All() {
			dead, err := m.kernel.Slots.Dead(e.Slot)
			check.That(t, err == nil && (e.Slot == 0 || dead), "%s is free, and slot %d is not dead (%v)", l.Name, e.Slot, err)
		}
	}
	for step := 0; ; step++ {
		g := m.guest(n, "u"+string(rune('a'+step)))
		n.Death.Left = step
		err := g.add(n)
		died := n.Death.Left == 0
		lossless := func() {}
		if err == nil {
			lossless = pings(t, host.Namespace, g.addr)
		}
		n.Restart()
		check.OK(t, n.Restored)
		n.Settle()
		lossless()
		check.That(t, err != nil || reaches(t, host.Namespace, g.addr), "step %d: the pod is mute", step)
		n.MustDel(g.request)
		if err == nil {
			check.OK(t, g.DeleteLink(g.request.Interface))
		}
		check.OK(t, n.Guards.Sweep())
		left := n.Attachments.All()
		check.Must(t, len(left) == 0 && len(n.API.Leases()) == 0, "step %d: journal %v, leases %v", step, left, n.API.Leases())
		leases, err := m.kernel.Leases.All()
		check.Must(t, err == nil && len(leases) == 0, "step %d: the kernel holds %v, %v", step, leases, err)
		if !died {
			t.Logf("%d deaths", step)
			break
		}
	}
}

// A process in the pod removes it, also under another name of the interface and after a restart of the agent.
func TestWithoutTCXAGuardThatAPodRemovesIsPutBack(t *testing.T) {
	rig := namespaces.New(t, 1)
	m := newMachine(t, rig.Node(1))
	m.noTCX = true
	n := fakenode.NewOn(t, m.open, fakenode.V4("10.0.0.2"))
	g := m.guest(n, "ua")
	check.OK(t, g.add(n))
	n.After.Wait()
	attached := func() bool {
		e, _ := n.Attachments.Get(g.request.ContainerID, g.request.Interface)
		return check.Value(n.Guards.Attached(&e))(t)
	}
	name := g.request.Interface
	for _, happens := range []func(){
		func() {},
		func() {
			l := check.Value(g.Links().LinkByName(name))(t)
			name = "renamed"
			check.OK(t, errors.Join(g.Links().LinkSetDown(l), g.Links().LinkSetName(l, name), g.Links().LinkSetUp(l)))
		},
		n.Restart,
	} {
		happens()
		check.OK(t, n.Guards.Repair())
		check.Equal(t, len(n.Recorder.Events), 0, "events while the guard is there:")
		l := check.Value(g.Links().LinkByName(name))(t)
		check.OK(t, g.Links().QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}}))
		check.Must(t, !attached(), "the guard is there without its qdisc")
		check.OK(t, n.Guards.Repair())
		check.Must(t, attached(), "the guard is not put back")
		check.Says(t, <-n.Recorder.Events, "GuardRestored", "NET_ADMIN")
	}
	check.OK(t, n.Guards.KillSlot(&attachment.Entry{Slot: n.SlotOf(g.request)}))
	check.OK(t, n.Guards.Repair())
	dead := check.Value(m.kernel.Slots.Dead(n.SlotOf(g.request)))(t)
	check.That(t, dead, "the slot was revived")
}

// machine has a real kernel, a real segment and real interfaces. The test is the CNI plugin.
type machine struct {
	t    *testing.T
	node *namespaces.Node
	pins string
	// noTCX: the kernel has no tcx.
	noTCX bool
	// kernel is that of the agent that runs.
	kernel *bpf.Kernel
}

func newMachine(t *testing.T, node *namespaces.Node) *machine {
	t.Helper()
	bpffs := t.TempDir()
	check.OK(t, unix.Mount("bpf", bpffs, "bpf", 0, ""))
	m := &machine{t: t, node: node, pins: filepath.Join(bpffs, "fenceline")}
	t.Cleanup(func() {
		check.OK(t, check.Value(bpf.Open(bpf.Options{Dir: m.pins}))(t).Remove())
		check.OK(t, unix.Unmount(bpffs, unix.MNT_DETACH))
	})
	check.Becomes(t, time.Minute, "the underlay is up", func() bool {
		l, err := node.Links().LinkByName(namespaces.Parent)
		return err == nil && l.Attrs().OperState == netlink.OperUp
	})
	return m
}

// open is the machine as an agent finds it.
func (m *machine) open(n *fakenode.Node) fakenode.Machine {
	t := m.t
	t.Helper()
	var k *bpf.Kernel
	check.OK(t, m.node.Do(func() (err error) { // the observers learn the node's network namespace
		k, err = bpf.Open(bpf.Options{Dir: m.pins, NoTCX: m.noTCX})
		return err
	}))
	m.kernel = k
	key := bpf.ClaimKey{1, 2, 3}
	check.OK(t, k.SetKeys(&key, nil))
	check.OK(t, k.Leases.SetNetworks([]uint64{claim.Network(fakenode.Cluster, "")}))
	segments := segment.New(segment.Config{Kernel: segment.KernelOf(k), Log: testr.New(t)})
	segments.SetKeys(claim.Key(key))
	var links *pod.Finder
	check.OK(t, m.node.Do(func() (err error) {
		links, err = pod.NewFinder()
		return err
	}))
	return fakenode.Machine{
		Kernel: guards.KernelOf(k), Revision: k.Ceiling.Revision, Do: m.node.Do,
		Run: func(ctx context.Context) error { return segments.Run(ctx, nodeHolder{n}) },
		OpenSegment: func(parent int) (seg acquire.Segment, err error) {
			err = m.node.Do(func() error {
				opened, err := segments.Open(parent)
				seg = segmentOf{opened, m.node}
				return err
			})
			return seg, err
		},
		FindLink: links.Find,
		Sighted: func(parent int, addr netip.Addr) bool {
			return k.Sightings.Within(bpf.Key{Segment: uint32(parent), Addr: addr}, time.Minute)
		},
		Close: func() {
			check.OK(t, segments.Close())
			check.OK(t, links.Close())
			check.OK(t, k.Close())
		},
	}
}

// segmentOf is a segment of a node whose namespace is not this process's.
type segmentOf struct {
	*segment.Segment
	node *namespaces.Node
}

func (s segmentOf) Observe() error { return s.node.Do(s.Segment.Observe) }

// nodeHolder is the node to its segments.
type nodeHolder struct{ *fakenode.Node }

func (h nodeHolder) Fenced(f bpf.Event) { h.Node.Fenced(int(f.Key.Segment), f.Key.Addr) }

func (nodeHolder) Met(segment.Conflict) {}

func (h nodeHolder) Holdings() (held []segment.Holding) {
	for e := range h.Attachments.Bound() {
		mac, _ := net.ParseMAC(e.MAC)
		for _, a := range e.Addresses {
			held = append(held, segment.Holding{
				Parent: e.ParentIndex, Network: claim.Network(fakenode.Cluster, a.Network), Token: a.Token,
				Announcement: segment.Announcement{NetNS: e.NetNS, Interface: e.Interface, MAC: mac, Addr: a.Addr, Slot: e.Slot},
			})
		}
	}
	return held
}

// guest is a pod's sandbox with its macvlan.
type guest struct {
	*network.Namespace
	request agentapi.AddRequest
	addr    netip.Addr
}

// guest makes a pod and its interface, as macvlan does before it calls IPAM.
func (m *machine) guest(n *fakenode.Node, uid string) *guest {
	t := m.t
	t.Helper()
	ns := network.New(t, uid)
	g := &guest{Namespace: ns, request: n.Pod("web", uid)}
	g.request.NetNS = ns.Path()
	check.OK(t, m.node.AddMacvlan(namespaces.Parent, nil, ns, g.request.Interface))
	return g
}

// add calls ADD, and does with the answer, or its lack, what macvlan does.
func (g *guest) add(n *fakenode.Node) error {
	t := n.T
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), agentapi.CallTimeout)
	defer cancel()
	answer, err := n.Add(ctx, g.request)
	if err != nil {
		check.OK(t, g.DeleteLink(g.request.Interface))
		return err
	}
	g.addr = answer.IPs[0].Address.Addr()
	// As macvlan: the interface announces its address itself.
	check.OK(t, g.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/"+g.request.Interface+"/arp_notify", []byte("1"), 0)
	}))
	check.OK(t, g.AddAddr(g.request.Interface, answer.IPs[0].Address))
	check.OK(t, g.SetUp(g.request.Interface, true))
	return nil
}

// reaches pings until there is an answer: neighbours may have to learn a new MAC first.
func reaches(t *testing.T, from *network.Namespace, to netip.Addr) bool {
	return from.Command(t.Context(), "ping", "-q", "-i", "0.1", "-c", "1", "-w", "30", to.String()).Run() == nil
}

// pings asks for an address 150 times. The pod must not notice the restart of the agent: no answer is
// missing when lossless has returned.
func pings(t *testing.T, from *network.Namespace, to netip.Addr) (lossless func()) {
	t.Helper()
	var out bytes.Buffer
	ping := from.Command(t.Context(), "ping", "-q", "-i", "0.01", "-c", "150", "-W", "1", to.String())
	ping.Stdout = &out
	check.OK(t, ping.Start())
	return func() {
		t.Helper()
		check.OK(t, ping.Wait())
		want := "150 received, 0% packet loss"
		check.That(t, strings.Contains(out.String(), want), "want %q: %s", want, out.String())
	}
}
