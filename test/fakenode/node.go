// SPDX-License-Identifier: Apache-2.0

// Package fakenode is a node for tests. Its agent's holders, guards and recovery are real. Its API
// server, kernel, segment and Warm leases are in memory. The agent can die before any of its
// effects, and start again.
package fakenode

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/acquire"
	"github.com/fenceline/fenceline/agent/assembly"
	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/pod/vf"
	"github.com/fenceline/fenceline/agent/proof"
	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

const (
	ThisNode    = "n1"
	ThisSession = "node-1/boot-1"
	Cluster     = "cluster"
)

const (
	// disputed is longer than recovery waits for the end of a dispute.
	disputed = 3 * time.Second
	// refusedWithin is the deadline of an ADD that must be refused. It leaves time for two attempts to
	// get a kept address.
	refusedWithin = 3250 * time.Millisecond
)

// Node is node n1, with an API server, a kernel and a segment in memory. The agent can die and start
// again with them and its journal.
type Node struct {
	*holder.Holders
	Guards   *guards.Guards
	Recovery *recovery.Worker
	clock    *fastClock
	T        *testing.T
	Dir      string
	API      *API
	Kernel   *Kernel
	// OwnAddr is an address of the node itself.
	OwnAddr netip.Addr
	// Routes must leave ServiceCIDRs and NodeSubnets alone.
	ServiceCIDRs, NodeSubnets []netip.Prefix
	// Services returns ServiceCIDRs, by default at once.
	Services func(context.Context) []netip.Prefix
	Wire     *Wire
	Warm     *Warm
	Death    *Death
	// Life is the session of the node.
	Life     string
	Recorder *events.FakeRecorder
	Waits    *Waits
	// Restored is the error of Restore at the last start.
	Restored error
	machine  func(*Node) Machine
	alive    Machine // of the agent that runs
	running  sync.WaitGroup
	stop     context.CancelFunc
	// Places are the interfaces that a search finds in the network namespaces of the node.
	Places []pod.Place
	// Kind is that of the interfaces.
	Kind pod.Kind
	// PassesPorts: a plugin of the pod network has the capability portMappings.
	PassesPorts bool
	// Strict are the network namespaces whose interfaces take nothing from routers.
	Strict []string
	// Of these, a test may replace each. FindLink is that of the machine after each start.
	FindLink   func(netns, ifname string) (pod.Interface, error)
	FindUserVF func(device string) (pod.Interface, bool, error)
	UserVFs    []vf.Function
	Multus     func() (ipam.Multus, error)
	VFs        assembly.VFs
	HostLinks  holder.HostLinks
	// GuardSources tells the kernel what an interface may send; nil does nothing.
	GuardSources func(*attachment.Entry) error
	// Lowered are the network namespaces whose interfaces the agent has set down.
	Lowered []string
	// set has the MACs that plugins or pods have set, removed the namespaces that the runtime has
	// removed, both by network namespace.
	macs    sync.Mutex
	set     map[string]net.HardwareAddr
	removed map[string]bool
}

// Machine is what an agent acts on. By default it is in memory.
type Machine struct {
	Kernel      guards.Kernel
	Revision    func() (uint64, error)
	OpenSegment func(parent int) (acquire.Segment, error)
	FindLink    func(netns, ifname string) (pod.Interface, error)
	Sighted     func(parent int, addr netip.Addr) bool
	// Do runs fn where the agent runs. If it is nil, fn runs in place.
	Do func(fn func() error) error
	// Run runs beside the agent until ctx ends, and Close releases the machine after it. Both may be nil.
	Run   func(ctx context.Context) error
	Close func()
}

// New starts an agent on a machine in memory.
func New(t *testing.T, pools ...*v1alpha1.IPPool) *Node {
	t.Helper()
	return NewOn(t, (*Node).inMemory, pools...)
}

// WithPod is New with a pod called web that has an address.
func WithPod(t *testing.T, pools ...*v1alpha1.IPPool) (*Node, agentapi.AddRequest) {
	t.Helper()
	r := New(t, pools...)
	web := r.Pod("web", "u1")
	r.MustAdd(web)
	return r, web
}

// NewOn starts an agent. At each start of the agent, machine is called again.
func NewOn(t *testing.T, machine func(*Node) Machine, pools ...*v1alpha1.IPPool) *Node {
	t.Helper()
	k := NewKernel()
	r := &Node{
		T: t, Dir: t.TempDir(), API: NewAPI(), Kernel: k, Wire: NewWire(k), Warm: NewWarm(), Life: ThisSession,
		HostLinks: NoHostLinks{}, VFs: NoVFs{}, Multus: func() (ipam.Multus, error) { return ipam.Multus{}, nil },
		machine: machine, set: map[string]net.HardwareAddr{}, removed: map[string]bool{},
	}
	r.Services = func(context.Context) []netip.Prefix { return r.ServiceCIDRs }
	r.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	r.API.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ThisNode}})
	for _, p := range pools {
		r.API.Put(p)
	}
	// This judges R1 and R6 at each write: an address that becomes free has no speaker here.
	r.API.Freed = func(l *v1alpha1.IPLease) {
		key := bpf.Key{Segment: ParentIndex, Addr: netip.MustParseAddr(l.Spec.Address)}
		if slots := k.Speakers(key); len(slots) > 0 {
			t.Errorf("%s is free while slot %v may speak for it", key.Addr, slots)
		}
		if l.Spec.Previous != nil || l.Spec.Session != r.Life {
			t.Errorf("%s is free, and its last holder was never proven silent: %+v", key.Addr, l.Spec)
		}
	}
	r.start()
	t.Cleanup(func() {
		r.end()
		r.Attachments.Close()
	})
	return r
}

// inMemory returns a machine with fakes of kernel and segment.
func (r *Node) inMemory() Machine {
	return Machine{
		Kernel: r.Kernel.Parts(), Revision: r.Kernel.Revision,
		OpenSegment: func(int) (acquire.Segment, error) { return r.Wire, nil },
		FindLink: func(netns, _ string) (pod.Interface, error) {
			if r.isRemoved(netns) {
				return pod.Interface{}, pod.ErrNoNetNS
			}
			return pod.Interface{MAC: r.macOf(netns), Kind: r.Kind, Parent: pod.Parent{Index: ParentIndex, Name: "eth1"}}, nil
		},
		Sighted: func(int, netip.Addr) bool { return false },
	}
}

// start starts an agent.
func (r *Node) start() {
	r.T.Helper()
	r.Death = &Death{Left: -1}
	book := check.Value(attachment.Open(r.Dir))(r.T)
	book.Begin(r.Life)
	book.Disk = mortalDisk{book.Disk, r.Death}
	r.Recorder = events.NewFakeRecorder(1000)
	r.Waits = &Waits{}
	ctx, stop := context.WithCancel(r.T.Context())
	r.stop = stop
	r.clock = &fastClock{}
	r.alive = r.machine(r)
	m, api := r.alive, mortalAPI{r.API, r.Death}
	r.FindLink = m.FindLink
	kernel := m.Kernel
	kernel.Guards, kernel.Leases = mortalGuards{kernel.Guards, r.Death}, mortalLeases{kernel.Leases, r.Death}
	ground := assembly.NewGround(assembly.GroundOptions{
		Self:   proof.Node{Name: ThisNode, Session: r.Life, Cluster: Cluster, OthersShare: func() bool { return true }},
		Client: api, Reader: truth{api}, Attachments: book, Kernel: kernel, Revision: m.Revision,
		HasDevice: func(string, string) (bool, error) { return true, nil }, // Stage reports one that is gone
		// The rotation begins at .2, so that tests can predict addresses.
		Rotations:  map[string]netip.Addr{"v4": netip.MustParseAddr("10.0.0.1"), "v6": netip.MustParseAddr("fd00::1")},
		LeaseClock: clock.RealClock{},
		Events:     r.Recorder, Metrics: r.Waits, Log: testr.New(r.T), Clock: r.clock,
	})
	parts := assembly.New(ctx, assembly.Options{
		Ground: ground, StatefulSet: v1alpha1.StatefulSetPrefer, Patience: agentapi.WaitTimeout, Cache: cache{api, r.API},
		Warm: r.Warm, HostLinks: hostLinks{r}, VFs: vfs{r}, SourceGuards: sources{r}, Links: links{r},
		Routing:     func(*attachment.Entry) (*attachment.Routing, error) { return nil, nil },
		OpenSegment: m.OpenSegment, Sighted: m.Sighted,
		FindLink:    func(netns, ifname string) (pod.Interface, error) { return r.FindLink(netns, ifname) },
		FindUserVF:  func(device string) (pod.Interface, bool, error) { return r.FindUserVF(device) },
		UserVFs:     func() ([]vf.Function, error) { return r.UserVFs, nil },
		Outage:      r.API.Outage,
		Multus:      func() (ipam.Multus, error) { return r.Multus() },
		ParentOf:    func(int) (ipam.Parent, error) { return ipam.Parent{Name: "eth1", Names: []string{"eth1"}}, nil },
		OfNode:      func(_ int, addr netip.Addr) (bool, error) { return addr == r.OwnAddr, nil },
		Places:      func() ([]pod.Place, error) { return r.Places, nil },
		NodeSubnets: func() ([]netip.Prefix, error) { return r.NodeSubnets, nil },
		Services:    func(ctx context.Context) []netip.Prefix { return r.Services(ctx) },
		Share:       func() ipam.Share { return ipam.Share{Count: 1} },
		PassesPorts: func() (bool, error) { return r.PassesPorts, nil },
		Rand:        func() float64 { return 0 },
	})
	r.running.Go(func() { r.API.answer(ctx, parts.Waiting) })
	r.Holders, r.Guards, r.Recovery = parts.Holders, ground.Guards, parts.Recovery
	if r.Restored = r.do(r.Recovery.Restore); r.Restored != nil {
		r.T.Logf("restore: %v", r.Restored)
	}
	if m.Run != nil {
		r.running.Go(func() {
			if err := m.Run(ctx); err != nil {
				r.T.Error(err)
			}
		})
	}
}

// do runs fn where the agent runs.
func (r *Node) do(fn func() error) error {
	if r.alive.Do == nil {
		return fn()
	}
	return r.alive.Do(fn)
}

// end ends the agent, and releases its machine.
func (r *Node) end() {
	r.stop()
	r.running.Wait()
	r.After.Wait()
	if r.alive.Close != nil {
		r.alive.Close()
	}
}

// Add calls ADD. Its answer reaches the plugin.
func (r *Node) Add(ctx context.Context, request agentapi.AddRequest) (*agentapi.AddResponse, error) {
	var answer *agentapi.AddResponse
	r.setRemoved(request.NetNS, false)
	err := r.do(func() (err error) {
		if answer, err = r.Holders.Add(ctx, request); err == nil {
			r.After.Answered(request.Attachment)
		}
		return err
	})
	return answer, err
}

// Stop ends the waits of an agent that is stopping.
func (r *Node) Stop() { r.stop() }

// Restart ends the agent and starts another one.
func (r *Node) Restart() {
	r.T.Helper()
	r.end()
	check.OK(r.T, r.Attachments.Close())
	r.start()
}

// Settle resumes all journal entries until nothing is left to do.
func (r *Node) Settle() {
	r.T.Helper()
	for range 20 {
		for _, e := range r.Attachments.All() {
			r.Attachments.Pending.Add(e.Attachment())
		}
		if left, _ := r.resume(); left == 0 {
			return
		}
		r.Skip(disputed)
	}
	left, why := r.resume()
	r.T.Fatalf("%d entries are never resumed: %v", left, why)
}

func (r *Node) resume() (left int, err error) {
	err = r.do(func() (err error) {
		left, err = r.Recovery.Resume(r.T.Context(), attachment.AskTimeout)
		return err
	})
	return left, err
}

// Skip sets the agent's clock ahead. Running timers do not notice.
func (r *Node) Skip(d time.Duration) { r.clock.ahead.Add(int64(d)) }

// fastClock is a clock that a test can set ahead. Its timers are real.
type fastClock struct {
	clock.RealClock
	ahead atomic.Int64
}

func (c *fastClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *fastClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// FreeSlots returns the slots that an ADD could get.
func (r *Node) FreeSlots() map[uint32]bool {
	r.T.Helper()
	free := map[uint32]bool{}
	for {
		slot, err := r.Guards.Slots.Take()
		if err != nil {
			break
		}
		free[slot] = true
	}
	for slot := range free {
		r.Guards.Slots.PutBack(slot)
	}
	return free
}

// Pool returns a default pool with these addresses.
func Pool(name, subnet string, mode v1alpha1.ConflictMode, ips ...string) *v1alpha1.IPPool {
	yes := true
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
		Subnet: subnet, IPs: ips, Default: &yes,
		ConflictDetection: &v1alpha1.ConflictDetection{Mode: mode},
	}}
}

func V4(ips ...string) *v1alpha1.IPPool {
	return Pool("v4", "10.0.0.0/24", v1alpha1.ModeEnforce, ips...)
}

// Pod makes a pod and returns the ADD of its sandbox, which is called c- and the uid.
func (r *Node) Pod(name, uid string, change ...func(*corev1.Pod)) agentapi.AddRequest {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}}
	for _, c := range change {
		c(p)
	}
	r.API.Put(p)
	return Sandbox(p, "c-"+uid)
}

// OfStatefulSet makes a StatefulSet own the pod, so that it keeps its name.
func OfStatefulSet(p *corev1.Pod) {
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "web", UID: "s", Controller: &yes}}
}

// Sandbox returns the ADD of a container of a pod.
func Sandbox(p *corev1.Pod, container string) agentapi.AddRequest {
	return agentapi.AddRequest{
		Attachment: agentapi.Attachment{ContainerID: container, Interface: "eth0"}, NetNS: "/netns/" + container,
		Pod:     agentapi.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		Network: agentapi.Network{Name: "underlay", Type: "macvlan"},
	}
}

func Del(r agentapi.AddRequest) agentapi.DelRequest {
	return agentapi.DelRequest{Attachment: r.Attachment}
}

// MustAdd expects an ADD to succeed and returns its addresses.
func (r *Node) MustAdd(request agentapi.AddRequest) []string {
	r.T.Helper()
	answer := check.Value(r.Add(r.T.Context(), request))(r.T)
	var got []string
	for _, ip := range answer.IPs {
		got = append(got, ip.Address.Addr().String())
	}
	return got
}

// Refused expects an ADD to fail with a code, and returns its message.
func (r *Node) Refused(code uint, request agentapi.AddRequest) string {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), refusedWithin)
	defer cancel()
	answer, err := r.Add(ctx, request)
	if err == nil || refusal.Answer(err).Code != code {
		r.T.Fatalf("ADD answers %v, %v, want code %d", answer, err, code)
	}
	return refusal.Answer(err).Msg
}

// MustDel makes a pod Terminating and sends its DEL.
func (r *Node) MustDel(request agentapi.AddRequest) {
	r.T.Helper()
	r.Terminate(request)
	r.SandboxDies(request)
}

// Terminate makes the pod of a request Terminating, if it exists.
func (r *Node) Terminate(request agentapi.AddRequest) {
	r.API.ChangePod(request.Pod.Name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
}

// SandboxDies sends DEL after the network namespace has gone. The state of the pod does not matter.
func (r *Node) SandboxDies(request agentapi.AddRequest) {
	r.T.Helper()
	r.SandboxEnds(request)
	check.OK(r.T, r.do(func() error { return r.Del(r.T.Context(), Del(request)) }))
}

// SandboxEnds removes the network namespace of a sandbox.
func (r *Node) SandboxEnds(request agentapi.AddRequest) { r.setRemoved(request.NetNS, true) }

// End removes the device of a sandbox, as the runtime does, and sweeps its guard.
func (r *Node) End(request agentapi.AddRequest) {
	r.T.Helper()
	r.Kernel.Unplug(request.NetNS, request.Interface)
	check.OK(r.T, r.Guards.Sweep())
}

func Key(addr string) bpf.Key { return bpf.Key{Segment: ParentIndex, Addr: netip.MustParseAddr(addr)} }

// Held returns a lease of a pod of another node, after the changes.
func Held(addr string, change ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", netip.MustParseAddr(addr))}, Spec: v1alpha1.IPLeaseSpec{
		Address: addr, Pool: "v4", State: v1alpha1.StateBound, NodeName: "n2", Session: "node-2/boot-1",
		Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-0", PodUID: "u0", Interface: "eth0", ContainerID: "c0", MAC: "02:00:00:00:02:01", OwnerKind: "StatefulSet"},
	}}
	for _, c := range change {
		c(&l.Spec)
	}
	return l
}

// LastToken is the token of the last holder of a Quarantined lease.
const LastToken = 7

func Quarantined(reason v1alpha1.LeaseReason) func(*v1alpha1.IPLeaseSpec) {
	return func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason = v1alpha1.StateQuarantined, reason
		s.Previous = &v1alpha1.PreviousHolder{Node: s.NodeName, Session: s.Session, PodUID: "u0", MAC: s.Holder.MAC, Token: LastToken, Guarded: true, Reason: reason}
		s.Session, s.NodeName = "", ThisNode
	}
}

func ClientObjectKey(pod string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: pod}
}
