// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package recovery_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/agent/foreign"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/fakenode"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/network"
)

// underlay is some real machines with real kernel programs and segments; only
// the API server is in memory, and the test is the CNI plugin.
type underlay struct {
	*namespaces.Rig
	t     *testing.T
	api   *fakenode.API
	bpffs string
}

// machine is a node with its agent.
type machine struct {
	*holder.Holders
	Guards   *guards.Guards
	Recovery *recovery.Worker
	u        *underlay
	node     *namespaces.Node
	name     string
	dir      string
	// death is the running agent's.
	death *fakenode.Death
	// stop ends the agent; what is pinned and journalled stays.
	stop func()
}

func newUnderlay(t *testing.T, pools ...*v1alpha1.IPPool) *underlay {
	t.Helper()
	u := &underlay{Rig: namespaces.New(t, 2), t: t, api: fakenode.NewAPI(), bpffs: t.TempDir()}
	check(t, unix.Mount("bpf", u.bpffs, "bpf", 0, ""))
	t.Cleanup(func() { check(t, unix.Unmount(u.bpffs, unix.MNT_DETACH)) })
	u.api.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for _, p := range pools {
		u.api.Put(p)
	}
	return u
}

// machine starts the agent of node n.
func (u *underlay) machine(n int) *machine {
	u.t.Helper()
	m := &machine{u: u, node: u.Node(n), name: fmt.Sprintf("n%d", n), dir: u.t.TempDir()}
	u.api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.name}})
	u.eventually("the underlay of "+m.name+" is up", func() bool {
		l, err := m.node.Links().LinkByName(namespaces.Parent)
		return err == nil && l.Attrs().OperState == netlink.OperUp
	})
	m.start()
	u.t.Cleanup(func() {
		if m.stop != nil {
			m.stop()
		}
		k, err := bpf.Open(bpf.Options{Dir: filepath.Join(u.bpffs, m.name)})
		check(u.t, err)
		check(u.t, k.Remove())
	})
	return m
}

// segmentOf is a segment of one of the nodes that this process is.
type segmentOf struct {
	*segment.Segment
	node *namespaces.Node
}

func (s segmentOf) Observe() error { return s.node.Do(s.Segment.Observe) }

func (m *machine) start() {
	t := m.u.t
	t.Helper()
	book, err := journal.Open(m.dir)
	check(t, err)
	k, err := bpf.Open(bpf.Options{Dir: filepath.Join(m.u.bpffs, m.name)})
	check(t, err)
	key := [16]byte{1, 2, 3}
	check(t, k.SetKeys((*bpf.ClaimKey)(&key), nil))
	check(t, k.SetNetworks([]uint64{claim.Network("cluster", "")}))
	segments := segment.New(segment.Config{Kernel: k, Log: testr.New(t), Holdings: func() []segment.Holding { return m.holdings() },
		OnFenced: func(f segment.Fence) { m.Fenced(f.Key) }})
	segments.SetKeys(claim.Key(key))
	var links *pod.Finder
	check(t, m.node.Do(func() (err error) {
		links, err = pod.NewFinder()
		return err
	}))
	m.death = &fakenode.Death{Left: -1}
	api := fakenode.MortalAPI{API: m.u.api, Death: m.death}
	session := "uid-" + m.name + "/boot"
	store := lease.NewStore(lease.Options{Client: api, Reader: api, Node: m.name, Session: session, Clock: clock.RealClock{}})
	ctx, cancel := context.WithCancel(context.Background())
	journal := fakenode.MortalJournal{Journal: book, Death: m.death}
	open := func(parent int) (holder.Segment, error) {
		seg, err := segments.Open(parent)
		return segmentOf{seg, m.node}, err
	}
	recorder, log := events.NewFakeRecorder(1000), testr.New(t)
	m.Guards = guards.New(guards.Options{
		Session: session, Cluster: "cluster", Kernel: fakenode.MortalKernel{Kernel: k, Death: m.death}, Journal: journal,
		ParentExists: func(int) bool { return true },
		Events:       recorder, Metrics: fakenode.NoMetrics{}, Log: log, Clock: clock.RealClock{},
	})
	m.Holders = holder.New(ctx, holder.Options{
		Node: m.name, Session: session, Cluster: "cluster", Cache: api, Reader: api, Leases: store,
		Foreign: &foreign.Hosts{Recorded: store.ConflictsWith, Clock: clock.RealClock{}},
		Allocator: allocate.New(allocate.Options{Leases: store, Clock: clock.RealClock{}, Last: map[string]netip.Addr{
			"v4": netip.MustParseAddr("10.0.0.1"),
		}}),
		Warm: fakenode.NewWarm(), Journal: journal, Guards: m.Guards, HostLinks: fakenode.NoHostLinks{},
		Waiting: waiting.New(waiting.Options{
			Leases: m.u.api, Rand: func() float64 { return 0 }, Metrics: &fakenode.Waits{}, Clock: clock.RealClock{}, Log: log, Background: ctx,
		}),
		OpenSegment: open,
		Sighted: func(parent int, addr netip.Addr) bool {
			return k.SightedWithin(bpf.Key{Segment: uint32(parent), Addr: addr}, time.Minute)
		},
		OthersShare: func() bool { return true },
		FindLink: func(netns, ifname string) (holder.Link, error) {
			i, err := links.Find(netns, ifname)
			return holder.Link{MAC: i.MAC, Parent: i.Parent.Name, ParentIndex: i.Parent.Index}, err
		},
		Share:  func() ipam.Share { return ipam.Share{Count: 1} },
		Events: recorder, Metrics: fakenode.NoMetrics{}, Log: log, Clock: clock.RealClock{},
	})
	m.Recovery = recovery.New(recovery.Options{
		Node: m.name, Session: session, Cache: api, Client: api, Reader: api, Leases: store,
		Journal: journal, Holders: m.Holders, Guards: m.Guards, OpenSegment: open,
		Events: recorder, Log: log, Clock: clock.RealClock{},
	})
	check(t, m.node.Do(m.Recovery.Restore))
	var running sync.WaitGroup
	running.Go(func() { check(t, segments.Run(ctx)) })
	m.stop = func() {
		cancel()
		running.Wait()
		m.Wait()
		check(t, segments.Close())
		check(t, links.Close())
		check(t, k.Close())
		check(t, book.Close())
		m.stop = nil
	}
}

func (m *machine) holdings() (held []segment.Holding) {
	for e := range m.Bound() {
		mac, _ := net.ParseMAC(e.MAC)
		for _, a := range e.Addresses {
			held = append(held, segment.Holding{Parent: e.ParentIndex, Addr: a.Addr, Network: claim.Network("cluster", a.Network),
				Token: a.Token, Slot: e.Slot, MAC: mac, NetNS: e.NetNS, Interface: e.Interface})
		}
	}
	return held
}

// resumeAll resumes the journal until nothing is left to do.
func (m *machine) resumeAll() {
	m.u.t.Helper()
	m.u.eventually("the journal of "+m.name+" is resumed", func() bool {
		for _, e := range m.Journal.All() {
			m.Pending.Add(e.Attachment())
		}
		left := 0
		check(m.u.t, m.node.Do(func() error {
			left, _ = m.Recovery.Resume(m.u.t.Context(), holder.AskTimeout)
			return nil
		}))
		return left == 0
	})
}

// guest is a pod's sandbox with its macvlan.
type guest struct {
	*network.Namespace
	machine *machine
	request agentapi.AddRequest
	addr    netip.Addr
	mac     net.HardwareAddr
}

// guest makes a pod and its interface, as macvlan does before it calls IPAM.
func (m *machine) guest(name, uid string, change ...func(*corev1.Pod)) *guest {
	t := m.u.t
	t.Helper()
	ns, err := network.Create(fmt.Sprintf("flt-%d-%s-%s", os.Getpid(), m.name, uid))
	check(t, err)
	t.Cleanup(func() { check(t, ns.Delete()) })
	p := fakenode.PodOf(name)
	p.UID = types.UID(uid)
	for _, c := range change {
		c(p)
	}
	m.u.api.Put(p)
	g := &guest{Namespace: ns, machine: m, request: fakenode.Sandbox(p, "c-"+uid)}
	g.request.NetNS = ns.Path()
	g.plug()
	return g
}

func (g *guest) plug() {
	t := g.machine.u.t
	t.Helper()
	parent, err := g.machine.node.Index(namespaces.Parent)
	check(t, err)
	f, err := os.Open(g.Path())
	check(t, err)
	defer f.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.Namespace = "eth0", parent, netlink.NsFd(f.Fd())
	check(t, g.machine.node.Links().LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}))
	g.mac, err = g.MAC("eth0")
	check(t, err)
}

// add calls ADD, and does with the answer, or its lack, what macvlan does.
func (g *guest) add() error {
	t := g.machine.u.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), agentapi.CallTimeout)
	defer cancel()
	var answer *agentapi.AddResponse
	err := g.machine.node.Do(func() (err error) {
		if answer, err = g.machine.Add(ctx, g.request); err == nil {
			g.machine.Answered(g.request.Attachment)
		}
		return err
	})
	if err != nil {
		check(t, g.DeleteLink("eth0"))
		return err
	}
	g.addr = answer.IPs[0].Address.Addr()
	// As macvlan: the interface announces its address itself.
	check(t, g.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/eth0/arp_notify", []byte("1"), 0)
	}))
	check(t, g.AddAddr("eth0", answer.IPs[0].Address))
	check(t, g.SetUp("eth0", true))
	return nil
}

// del calls DEL for a pod that is being deleted; the interface lives on, as it does under macvlan.
func (g *guest) del() {
	g.machine.u.t.Helper()
	g.machine.u.api.ChangePod(g.request.Pod.Name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	check(g.machine.u.t, g.machine.node.Do(func() error {
		return g.machine.Del(context.Background(), fakenode.Del(g.request))
	}))
}

// reaches pings until there is an answer: neighbours may have to learn a new MAC first.
func reaches(ctx context.Context, from *network.Namespace, to netip.Addr) bool {
	return from.Command(ctx, "ping", "-q", "-i", "0.1", "-c", "1", "-w", "30", to.String()).Run() == nil
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (u *underlay) eventually(what string, ok func() bool) {
	u.t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			u.t.Fatalf("not within a minute: %s", what)
		}
		<-tick.C
	}
}

func (m *machine) slot(g *guest) uint32 {
	e, _ := m.Journal.Get(g.request.ContainerID, g.request.Interface)
	return e.Slot
}
