package holder

import (
	"context"
	"iter"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// Kernel is what binding needs of *bpf.Kernel.
type Kernel interface {
	PrepareGuard(bpf.Guard) error
	DropGuard(slot uint32)
	StageGuard(bpf.Guard) error
	PinGuard(bpf.Guard) error
	DetachGuard(slot uint32) error
	GuardAttached(slot uint32) (bool, error)
	SweepGuards() ([]uint32, error)
	KillSlot(slot uint32) error
	SlotDead(slot uint32) (bool, error)
	InstallLease(bpf.Key, bpf.Lease) error
	RemoveLease(bpf.Key) error
	Lease(bpf.Key) (bpf.Lease, bool, error)
	Leases() (map[bpf.Key]bpf.Lease, error)
	Fenced(bpf.Key) (bool, error)
}

// Segment is the wire behind one parent. *segment.Segment implements it.
type Segment interface {
	Probe(context.Context, netip.Addr, segment.ProbeParams) (segment.Answer, error)
	ClaimAndConfirm(context.Context, segment.Claim) error
	Verify(context.Context, segment.Verification) (segment.Verdict, segment.Evidence, error)
	Announce(segment.Announcement)
	// Observe puts the observer back that somebody has taken off, or out of its place.
	Observe() error
}

// Leases is what binding needs of *lease.Store.
type Leases interface {
	Get(ctx context.Context, name string) (*v1alpha1.IPLease, error)
	Create(context.Context, lease.Request) (*v1alpha1.IPLease, error)
	TakeOver(context.Context, *v1alpha1.IPLease, lease.Request) (*v1alpha1.IPLease, error)
	Confirm(context.Context, *v1alpha1.IPLease) (*v1alpha1.IPLease, error)
	Unverified(ctx context.Context, l *v1alpha1.IPLease, message string) (*v1alpha1.IPLease, error)
	QuarantineConflict(ctx context.Context, l *v1alpha1.IPLease, e lease.Evidence) (*v1alpha1.IPLease, error)
	RecordConflict(context.Context, *v1alpha1.IPLease, lease.Evidence) (*v1alpha1.IPLease, error)
	Retain(context.Context, *v1alpha1.IPLease) (*v1alpha1.IPLease, error)
	Delete(context.Context, *v1alpha1.IPLease) error
	Quarantine(ctx context.Context, l *v1alpha1.IPLease, reason v1alpha1.LeaseReason, message string) (*v1alpha1.IPLease, error)
	TakeBack(context.Context, *v1alpha1.IPLease, lease.Request) (*v1alpha1.IPLease, error)
	OfPod(ctx context.Context, namespace, pod string) ([]v1alpha1.IPLease, error)
	BindWarm(ctx context.Context, warm *v1alpha1.IPLease, r lease.Request) (*v1alpha1.IPLease, error)
	WentBack(ctx context.Context, l *v1alpha1.IPLease, message string) (*v1alpha1.IPLease, error)
	Renew(context.Context, *v1alpha1.IPLease) (*v1alpha1.IPLease, error)
	ComingFree(ctx context.Context, pool string) (int, error)
}

// Journal is what outlives this process. *journal.Journal implements it.
type Journal interface {
	Put(journal.Entry) error
	Prepare() error
	Remove(containerID, ifname string) error
	Get(containerID, ifname string) (journal.Entry, bool)
	// What All and OfPod return is not to be changed.
	All() []*journal.Entry
	OfPod(podUID string) []*journal.Entry
	Rotations() map[string]netip.Addr
	PutRotations(map[string]netip.Addr) error
}

// Link is a pod's interface as ADD finds it.
type Link struct {
	MAC net.HardwareAddr
	// Parent is the name and ParentIndex the ifindex of the parent on the node.
	Parent      string
	ParentIndex int
}

// Metrics counts what happens while binding. Its methods may be called concurrently.
type Metrics interface {
	Conflict(pool string, source segment.Source)
	Verification(verdict segment.Verdict)
	PinFailed()
}

// Options of Holders. All are required.
type Options struct {
	// Node is the name of this node, Session its current life, Cluster the UID
	// of the kube-system namespace.
	Node, Session, Cluster string

	// Cache reads from the agent's filtered caches, Reader past them; Client writes.
	Cache  client.Reader
	Client client.Writer
	Reader client.Reader

	Leases    Leases
	Allocator *allocate.Allocator
	Warm      Warm
	Journal   Journal
	Kernel    Kernel
	// OpenSegment returns the segment of a parent, opening it at first use. The
	// observer of one that is open is Observe's.
	OpenSegment func(parent int) (Segment, error)
	// ParentExists tells whether the node has an interface of that index.
	ParentExists func(parent int) bool
	// FindLink finds a pod's interface in its network namespace.
	FindLink func(netns, ifname string) (Link, error)
	// Sighted tells whether somebody was just heard to speak for an address.
	Sighted func(parent int, addr netip.Addr) bool
	// Share is this agent's place among the agents.
	Share func() ipam.Share
	// OthersShare tells whether other agents exist, which could be heard.
	OthersShare func() bool

	Events  events.EventRecorder
	Metrics Metrics
	Log     logr.Logger
	Clock   clock.Clock
}

// Holders are the pod interfaces of this node with their addresses. Its
// methods may be called concurrently.
type Holders struct {
	Options

	// attachments keeps the plugin's calls and the worker apart. leases keeps a
	// take-over and a verification of one lease apart; it is taken second.
	attachments locks[attachment]
	leases      locks[string]
	slots       slots
	stock       stock
	pending     *pending
	overtaken   overtaken
	unanswered  unanswered

	// pinning keeps the moves of guards apart; unpinned are those that failed.
	pinning  sync.Mutex
	unpinned *pending

	// installing orders the installs and the removals of kernel leases: a sweep
	// must not remove what a new holder has installed in between.
	installing sync.Mutex
	// disputed is since when another holder's lease was seen for an address held
	// here. It belongs to the worker.
	disputed map[dispute]time.Time
	// unresumed is how often an entry has failed for all. It belongs to the worker.
	unresumed map[attachment]int
	// withoutEntry are leases that the journal did not know at the last audit, by
	// name with their version. It belongs to the worker.
	withoutEntry map[string]string
	// lastBoot is what leases tell of the time before it.
	lastBoot lastBoot
	// underWay counts the ADDs that have not ended yet.
	underWay atomic.Int32
	// away is set while the last word of the API server to an ADD was none.
	away atomic.Bool
	// background outlives a call; undo runs in it, and tasks are what ADDs have
	// left to be done.
	background context.Context
	tasks      sync.WaitGroup
}

// New returns Holders over what the journal holds. Restore and Run bring them
// to life; undo of an ADD and what Run does end with ctx.
func New(ctx context.Context, o Options) *Holders {
	h := &Holders{
		Options: o, pending: newPending(), unpinned: newPending(),
		disputed: map[dispute]time.Time{}, unresumed: map[attachment]int{}, background: ctx,
	}
	h.slots.next = firstSlot
	h.stock = stock{slots: &h.slots, prepare: o.Kernel.PrepareGuard, drop: o.Kernel.DropGuard}
	return h
}

// Wait returns once everything that ADDs have left to be done is done. No ADD
// may be under way.
func (h *Holders) Wait() { h.tasks.Wait() }

// Bound yields the entries whose interfaces hold addresses now. They are not to
// be changed.
func (h *Holders) Bound() iter.Seq[*journal.Entry] {
	return func(yield func(*journal.Entry) bool) {
		for _, e := range h.Journal.All() {
			if e.Phase == journal.Bound && e.Session == h.Session && !yield(e) {
				return
			}
		}
	}
}

// Holder returns who holds an address here, if somebody does.
func (h *Holders) Holder(key bpf.Key) (journal.Entry, journal.Address, bool) {
	for e := range h.Bound() {
		for _, address := range e.Addresses {
			if keyOf(e, address) == key {
				return *e, address, true
			}
		}
	}
	return journal.Entry{}, journal.Address{}, false
}

// warn makes an event of a pod, also of one that the cache does not hold any more.
func (h *Holders) warn(e *journal.Entry, reason, note string, args ...any) {
	h.Events.Eventf(podReference(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, reason, "Bind", note, args...)
}

// podReference names a pod for an event.
func podReference(namespace, name, uid string) runtime.Object {
	p := &corev1.Pod{}
	p.APIVersion, p.Kind = "v1", "Pod"
	p.Namespace, p.Name = namespace, name
	p.UID = apiUID(uid)
	return p
}
