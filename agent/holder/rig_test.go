package holder

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/cni/agentapi"
)

const (
	thisNode    = "n1"
	thisSession = "node-1/boot-1"
)

// rig is node n1 with pods to bind, on an API server, a kernel and a segment in
// memory. The agent can die and be started again over them and its journal.
type rig struct {
	*Holders
	t      *testing.T
	dir    string
	api    *memAPI
	kernel *memKernel
	wire   *memWire
	warm   *memWarm
	death  *death
	book   *journal.Journal
	// session is the node's present life.
	session string
	events  *events.FakeRecorder
}

func newRig(t *testing.T, pools ...*v1alpha1.IPPool) *rig {
	t.Helper()
	k := newMemKernel()
	r := &rig{t: t, dir: t.TempDir(), api: newMemAPI(), kernel: k, wire: newMemWire(k), warm: newMemWarm(), session: thisSession}
	r.api.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	r.api.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: thisNode}})
	for _, p := range pools {
		r.api.put(p)
	}
	// R1 and R6, watched at each write: whatever becomes free has no speaker here.
	r.api.freed = func(l *v1alpha1.IPLease) {
		key := bpf.Key{Segment: parentIndex, Addr: netip.MustParseAddr(l.Spec.Address)}
		if slots := k.speakers(key); len(slots) > 0 {
			t.Errorf("%s is free while slot %v may speak for it", key.Addr, slots)
		}
		if l.Spec.Previous != nil || l.Spec.Session != r.session {
			t.Errorf("%s is free, and its last holder was never proven silent: %+v", key.Addr, l.Spec)
		}
	}
	r.start()
	t.Cleanup(func() { r.book.Close() })
	return r
}

// start starts an agent.
func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.book, err = journal.Open(r.dir); err != nil {
		r.t.Fatal(err)
	}
	r.death = &death{left: -1}
	r.events = events.NewFakeRecorder(1000)
	api := mortalAPI{r.api, r.death}
	store := lease.NewStore(lease.Options{Client: api, Reader: api, Node: thisNode, Session: r.session, Clock: clock.RealClock{}})
	r.Holders = New(r.t.Context(), Options{
		Node: thisNode, Session: r.session, Cluster: "cluster",
		Cache: api, Client: api, Reader: api, Leases: store,
		// The rotation begins at .2, so that tests know who gets what.
		Allocator: allocate.New(allocate.Options{Leases: store, Clock: clock.RealClock{}, Last: map[string]netip.Addr{
			"v4": netip.MustParseAddr("10.0.0.1"), "v6": netip.MustParseAddr("fd00::1"),
		}}),
		Warm:         r.warm,
		Journal:      mortalJournal{r.book, r.death},
		Kernel:       mortalKernel{r.kernel, r.death},
		OpenSegment:  func(int) (Segment, error) { return r.wire, nil },
		Sighted:      func(int, netip.Addr) bool { return false },
		OthersShare:  func() bool { return true },
		ParentExists: func(parent int) bool { return parent == parentIndex },
		FindLink: func(netns, _ string) (Link, error) {
			return Link{MAC: macOf(netns), Parent: "eth1", ParentIndex: parentIndex}, nil
		},
		Share:  func() ipam.Share { return ipam.Share{Count: 1} },
		Events: r.events, Metrics: noMetrics{}, Log: testr.New(r.t), Clock: clock.RealClock{},
	})
	if err := r.Restore(); err != nil {
		r.t.Logf("restore: %v", err)
	}
}

// Add is an ADD whose answer reaches the plugin.
func (r *rig) Add(ctx context.Context, request agentapi.AddRequest) (*agentapi.AddResponse, error) {
	answer, err := r.Holders.Add(ctx, request)
	if err == nil {
		r.Answered(request.Attachment)
	}
	return answer, err
}

// restart ends the agent and starts another one.
func (r *rig) restart() {
	r.t.Helper()
	if err := r.book.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.start()
}

// settle resumes the whole journal until nothing is left to do.
func (r *rig) settle() {
	r.t.Helper()
	for range 20 {
		for _, e := range r.Journal.All() {
			r.pending.add(attachmentOf(e))
		}
		if left, _ := r.resume(r.t.Context(), askTimeout); left == 0 {
			return
		}
		for d := range r.disputed {
			r.disputed[d] = time.Now().Add(-disputePatience)
		}
	}
	left, why := r.resume(r.t.Context(), askTimeout)
	r.t.Fatalf("%d entries are never resumed: %v", left, why)
}

type noMetrics struct{}

func (noMetrics) Conflict(string, segment.Source) {}
func (noMetrics) Verification(segment.Verdict)    {}
func (noMetrics) PinFailed()                      {}

func macOf(netns string) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(len(netns)), netns[len(netns)-1]}
}

// pool returns a pool of some addresses that pods get by default.
func pool(name, subnet string, mode v1alpha1.ConflictMode, ips ...string) *v1alpha1.IPPool {
	yes := true
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
		Subnet: subnet, IPs: ips, Default: &yes,
		ConflictDetection: &v1alpha1.ConflictDetection{Mode: mode},
	}}
}

func v4(ips ...string) *v1alpha1.IPPool {
	return pool("v4", "10.0.0.0/24", v1alpha1.ModeEnforce, ips...)
}

// pod makes a pod and returns the ADD for its sandbox c.
func (r *rig) pod(name, uid string, change ...func(*corev1.Pod)) agentapi.AddRequest {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}}
	for _, c := range change {
		c(p)
	}
	r.api.put(p)
	return sandbox(p, "c-"+uid)
}

// ofStatefulSet makes a pod keep its name.
func ofStatefulSet(p *corev1.Pod) {
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "StatefulSet", Name: "web", UID: "s", Controller: &yes}}
}

// sandbox is the ADD of a container for a pod.
func sandbox(p *corev1.Pod, container string) agentapi.AddRequest {
	return agentapi.AddRequest{
		Attachment: agentapi.Attachment{ContainerID: container, Interface: "eth0"}, NetNS: "/netns/" + container,
		Pod:     agentapi.Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		Network: agentapi.Network{Name: "underlay", Type: "macvlan"},
	}
}

func del(r agentapi.AddRequest) agentapi.DelRequest {
	return agentapi.DelRequest{Attachment: r.Attachment}
}

// add expects an ADD to succeed and returns its addresses.
func (r *rig) add(request agentapi.AddRequest) []string {
	r.t.Helper()
	answer, err := r.Add(r.t.Context(), request)
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for _, ip := range answer.IPs {
		got = append(got, ip.Address.Addr().String())
	}
	return got
}

// refused expects an ADD to fail with a code, and returns what it says.
func (r *rig) refused(code uint, request agentapi.AddRequest) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), answerMargin+keptRetry+50*time.Millisecond)
	defer cancel()
	answer, err := r.Add(ctx, request)
	e, typed := errors.AsType[*agentapi.Error](err)
	if !typed || e.Code != code {
		r.t.Fatalf("ADD answers %v, %v, want code %d", answer, err, code)
	}
	return e.Msg
}

func (r *rig) del(request agentapi.AddRequest) {
	r.t.Helper()
	if err := r.Del(r.t.Context(), del(request)); err != nil {
		r.t.Fatal(err)
	}
}

// end is the runtime's end of a sandbox: its devices go.
func (r *rig) end(request agentapi.AddRequest) {
	r.t.Helper()
	r.kernel.unplug(request.NetNS, request.Interface)
	if err := r.Sweep(); err != nil {
		r.t.Fatal(err)
	}
}

func key(addr string) bpf.Key {
	return bpf.Key{Segment: parentIndex, Addr: netip.MustParseAddr(addr)}
}

// held is a lease of another node's pod, or one that the test changes.
func held(addr string, change ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName("", netip.MustParseAddr(addr))}, Spec: v1alpha1.IPLeaseSpec{
		Address: addr, Pool: "v4", State: v1alpha1.StateBound, NodeName: "n2", Session: "node-2/boot-1",
		Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web-0", PodUID: "u0", Interface: "eth0", ContainerID: "c0", MAC: "02:00:00:00:02:01", OwnerKind: "StatefulSet"},
	}}
	for _, c := range change {
		c(&l.Spec)
	}
	return l
}

func quarantined(reason v1alpha1.LeaseReason) func(*v1alpha1.IPLeaseSpec) {
	return func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason = v1alpha1.StateQuarantined, reason
		s.Previous = &v1alpha1.PreviousHolder{Node: s.NodeName, Session: s.Session, PodUID: "u0", MAC: s.Holder.MAC, Guarded: true, Reason: reason}
		s.Session, s.NodeName = "", thisNode
	}
}

func clientObjectKey(pod string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: pod}
}
