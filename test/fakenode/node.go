// SPDX-License-Identifier: Apache-2.0

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

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/foreign"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/recovery"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
)

const (
	ThisNode    = "n1"
	ThisSession = "node-1/boot-1"
)

const (
	// disputed is longer than recovery waits for the end of a dispute.
	disputed = 3 * time.Second
	// refusedWithin is the deadline of an ADD that is to be refused: it leaves time
	// to look twice for an address that is kept.
	refusedWithin = 3250 * time.Millisecond
)

// Node is node n1 with pods to bind, on an API server, a kernel and a segment in
// memory. The agent can die and be started again over them and its journal.
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
	// ServicesAnswered is closed once ServiceCIDRs is known, which is at the start by default.
	// ServiceCIDRs and NodeSubnets are what routes must leave alone.
	ServicesAnswered          chan struct{}
	ServiceCIDRs, NodeSubnets []netip.Prefix
	Wire                      *Wire
	Warm                      *Warm
	Death                     *Death
	Book                      *journal.Journal
	// session is the node's present life.
	Life     string
	Recorder *events.FakeRecorder
	Waits    *Waits
	stop     context.CancelFunc
	// IPVLAN: the interfaces are of type ipvlan.
	IPVLAN bool
	// Lowered are the network namespaces whose interfaces the agent has set down.
	Lowered []string
	// set are the MACs that plugins or pods have set, by network namespace.
	macs sync.Mutex
	set  map[string]net.HardwareAddr
}

func New(t *testing.T, pools ...*v1alpha1.IPPool) *Node {
	t.Helper()
	k := NewKernel()
	r := &Node{T: t, Dir: t.TempDir(), API: NewAPI(), Kernel: k, Wire: NewWire(k), Warm: NewWarm(), Life: ThisSession, ServicesAnswered: make(chan struct{})}
	close(r.ServicesAnswered)
	r.API.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	r.API.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ThisNode}})
	for _, p := range pools {
		r.API.Put(p)
	}
	// R1 and R6, watched at each write: whatever becomes free has no speaker here.
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
	t.Cleanup(func() { r.Book.Close() })
	return r
}

// start starts an agent.
func (r *Node) start() {
	r.T.Helper()
	var err error
	if r.Book, err = journal.Open(r.Dir); err != nil {
		r.T.Fatal(err)
	}
	r.Death = &Death{Left: -1}
	r.Recorder = events.NewFakeRecorder(1000)
	r.Waits = &Waits{}
	ctx, stop := context.WithCancel(r.T.Context())
	r.stop = stop
	api := MortalAPI{r.API, r.Death}
	store := lease.NewStore(lease.Options{Client: api, Reader: api, Node: ThisNode, Session: r.Life, Clock: clock.RealClock{}})
	book := MortalJournal{r.Book, r.Death}
	open := func(int) (holder.Segment, error) { return r.Wire, nil }
	log := testr.New(r.T)
	r.Guards = guards.New(guards.Options{
		Session: r.Life, Cluster: "cluster", Kernel: MortalKernel{r.Kernel, r.Death}, Journal: book,
		ParentExists: func(parent int) bool { return parent == ParentIndex },
		Events:       r.Recorder, Metrics: NoMetrics{}, Log: log, Clock: clock.RealClock{},
	})
	r.clock = &fastClock{}
	r.Holders = holder.New(r.T.Context(), holder.Options{
		Node: ThisNode, Session: r.Life, Cluster: "cluster", StatefulSet: v1alpha1.StatefulSetPrefer,
		Cache: cache{api, r.API}, Reader: api, Leases: store,
		// The rotation begins at .2, so that tests know who gets what.
		Allocator: allocate.New(allocate.Options{Leases: store, Clock: clock.RealClock{}, Last: map[string]netip.Addr{
			"v4": netip.MustParseAddr("10.0.0.1"), "v6": netip.MustParseAddr("fd00::1"),
		}}),
		Warm: r.Warm, Journal: book, Guards: r.Guards,
		Foreign: &foreign.Hosts{Recorded: store.ConflictsWith, Clock: r.clock},
		Waiting: waiting.New(waiting.Options{
			Leases: r.API, Rand: func() float64 { return 0 }, Metrics: r.Waits, Clock: clock.RealClock{}, Log: log, Background: ctx,
		}),
		HostLinks:        NoHostLinks{},
		OpenSegment:      open,
		Sighted:          func(int, netip.Addr) bool { return false },
		OfNode:           func(addr netip.Addr) (bool, error) { return addr == r.OwnAddr, nil },
		Services:         func() []netip.Prefix { return r.ServiceCIDRs },
		ServicesAnswered: r.ServicesAnswered,
		NodeSubnets:      func() ([]netip.Prefix, error) { return r.NodeSubnets, nil },
		OthersShare:      func() bool { return true },
		Patience:         agentapi.WaitTimeout,
		FindLink: func(netns, _ string) (holder.Link, error) {
			return holder.Link{MAC: r.macOf(netns), Parent: "eth1", ParentIndex: ParentIndex, OfParent: r.IPVLAN}, nil
		},
		Links:  links{r},
		Share:  func() ipam.Share { return ipam.Share{Count: 1} },
		Events: r.Recorder, Metrics: NoMetrics{}, Log: log, Clock: clock.RealClock{},
	})
	r.Recovery = recovery.New(recovery.Options{
		Node: ThisNode, Session: r.Life,
		Cache: api, Client: api, Reader: api, Leases: store,
		Journal: book, Holders: r.Holders, Guards: r.Guards, OpenSegment: open,
		Revision: r.Kernel.Revision, Events: r.Recorder, Log: log, Clock: r.clock,
	})
	if err := r.Recovery.Restore(); err != nil {
		r.T.Logf("restore: %v", err)
	}
}

// NoHostLinks stands in for host links: the pods of this node have no network namespace.
type NoHostLinks struct{}

func (NoHostLinks) Make(*journal.Entry) error   { return nil }
func (NoHostLinks) Check(*journal.Entry) error  { return nil }
func (NoHostLinks) Remove(*journal.Entry) error { return nil }
func (NoHostLinks) Wake(agentapi.Attachment)    {}

// Add is an ADD whose answer reaches the plugin.
func (r *Node) Add(ctx context.Context, request agentapi.AddRequest) (*agentapi.AddResponse, error) {
	answer, err := r.Holders.Add(ctx, request)
	if err == nil {
		r.Answered(request.Attachment)
	}
	return answer, err
}

// Stop ends the waits of an agent that is stopping.
func (r *Node) Stop() { r.stop() }

// Restart ends the agent and starts another one.
func (r *Node) Restart() {
	r.T.Helper()
	if err := r.Book.Close(); err != nil {
		r.T.Fatal(err)
	}
	r.start()
}

// Settle resumes the whole journal until nothing is left to do.
func (r *Node) Settle() {
	r.T.Helper()
	for range 20 {
		for _, e := range r.Journal.All() {
			r.Pending.Add(e.Attachment())
		}
		if left, _ := r.Recovery.Resume(r.T.Context(), holder.AskTimeout); left == 0 {
			return
		}
		r.Skip(disputed)
	}
	left, why := r.Recovery.Resume(r.T.Context(), holder.AskTimeout)
	r.T.Fatalf("%d entries are never resumed: %v", left, why)
}

// Skip lets time pass for the recovery and for the limits of foreign hosts.
func (r *Node) Skip(d time.Duration) { r.clock.ahead.Add(int64(d)) }

// fastClock is a clock that tests set ahead. Its timers are real.
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
		slot, err := r.Guards.Take(ParentIndex)
		if err != nil {
			break
		}
		free[slot] = true
	}
	for slot := range free {
		r.Guards.PutBack(ParentIndex, slot)
	}
	return free
}

// NoMetrics counts nothing.
type NoMetrics struct{}

func (NoMetrics) GatewayUnanswered(string) {}

func (NoMetrics) Conflict(string, segment.Source) {}
func (NoMetrics) Verification(segment.Verdict)    {}
func (NoMetrics) Renewal(segment.Verdict)         {}
func (NoMetrics) PinFailed()                      {}
func (NoMetrics) Waited(time.Duration, bool)      {}

// SetMAC changes the MAC of a pod's interface.
func (r *Node) SetMAC(netns string, mac net.HardwareAddr) {
	r.macs.Lock()
	defer r.macs.Unlock()
	if r.set == nil {
		r.set = map[string]net.HardwareAddr{}
	}
	r.set[netns] = mac
}

// links changes the interfaces of a node's pods.
type links struct{ *Node }

func (l links) SetMAC(netns, _ string, mac net.HardwareAddr) error {
	l.Node.SetMAC(netns, mac)
	return nil
}

func (l links) SetDown(netns, _ string) error {
	l.Lowered = append(l.Lowered, netns)
	return nil
}

func (r *Node) macOf(netns string) net.HardwareAddr {
	r.macs.Lock()
	defer r.macs.Unlock()
	if mac, ok := r.set[netns]; ok {
		return mac
	}
	return MacOf(netns)
}

func MacOf(netns string) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(len(netns)), netns[len(netns)-1]}
}

// Pool returns a pool of some addresses that pods get by default.
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

// Pod makes a pod and returns the ADD for its sandbox c.
func (r *Node) Pod(name, uid string, change ...func(*corev1.Pod)) agentapi.AddRequest {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}}
	for _, c := range change {
		c(p)
	}
	r.API.Put(p)
	return Sandbox(p, "c-"+uid)
}

// OfStatefulSet makes a pod keep its name.
func OfStatefulSet(p *corev1.Pod) {
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "web", UID: "s", Controller: &yes}}
}

// Sandbox is the ADD of a container for a pod.
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

// add expects an ADD to succeed and returns its addresses.
func (r *Node) MustAdd(request agentapi.AddRequest) []string {
	r.T.Helper()
	answer, err := r.Add(r.T.Context(), request)
	if err != nil {
		r.T.Fatal(err)
	}
	var got []string
	for _, ip := range answer.IPs {
		got = append(got, ip.Address.Addr().String())
	}
	return got
}

// Refused expects an ADD to fail with a code, and returns what it says.
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

// MustDel is the DEL of a pod that is being deleted.
func (r *Node) MustDel(request agentapi.AddRequest) {
	r.T.Helper()
	r.Terminate(request)
	r.SandboxDies(request)
}

// Terminate makes the pod of a request Terminating, if it exists.
func (r *Node) Terminate(request agentapi.AddRequest) {
	r.API.ChangePod(request.Pod.Name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
}

// SandboxDies is a DEL, whatever its pod does.
func (r *Node) SandboxDies(request agentapi.AddRequest) {
	r.T.Helper()
	if err := r.Del(r.T.Context(), Del(request)); err != nil {
		r.T.Fatal(err)
	}
}

// End is the runtime's end of a sandbox: its devices go.
func (r *Node) End(request agentapi.AddRequest) {
	r.T.Helper()
	r.Kernel.Unplug(request.NetNS, request.Interface)
	if err := r.Guards.Sweep(); err != nil {
		r.T.Fatal(err)
	}
}

func Key(addr string) bpf.Key {
	return bpf.Key{Segment: ParentIndex, Addr: netip.MustParseAddr(addr)}
}

// Held is a lease of another node's pod, or one that the test changes.
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

// LastToken is the token of the holder of a lease that is Quarantined.
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
