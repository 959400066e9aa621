package warm

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// lookEvery is how often the facts are looked at although nothing has told
	// of a change: pairs go out of use, parents come and go.
	lookEvery = 30 * time.Second
	// gather is how long the keeper waits for what comes together: the pods of a
	// roll-out come first, the leases that replace theirs later.
	gather = 500 * time.Millisecond
	// retryFirst and retryMost bound the back-off of what failed.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// Watch proves one address and watches it. *segment.LongWatch implements it.
type Watch interface {
	Prove(context.Context, segment.Timing) (segment.Doubt, segment.Answer, error)
	Wait(context.Context) (segment.Doubt, segment.Answer, error)
	Doubt() (segment.Doubt, segment.Answer, error)
	End() error
}

// Leases is what the keeper needs of *lease.Store.
type Leases interface {
	ThrowOut(context.Context, *v1alpha1.IPLease, lease.Evidence) (*v1alpha1.IPLease, error)
	Delete(context.Context, *v1alpha1.IPLease) error
}

// Allocator chooses addresses. *allocate.Allocator implements it.
type Allocator interface {
	OnDemand(context.Context, allocate.Wish) (*v1alpha1.IPLease, *v1alpha1.IPPool, error)
	Freed(pool string, addr netip.Addr)
}

// Metrics counts Warm leases. Its methods may be called concurrently.
type Metrics interface {
	// WarmLeases is how many there are, by pool; a pool without any is forgotten.
	WarmLeases(pool string, ready, unproven int)
	// WarmTaken counts ADDs that asked for one, and whether they got one.
	WarmTaken(pool string, got bool)
	// WarmLost counts proofs that were voided and leases that were given up.
	WarmLost(pool, reason string)
	Conflict(pool string, source segment.Source)
}

// Options of a Keeper. All are required but Timing.
type Options struct {
	Node string
	// Cache reads from the agent's filtered caches.
	Cache     client.Reader
	Leases    Leases
	Allocator Allocator
	Journal   Journal
	// Named returns the interfaces of this node that a pool names, which need not
	// exist. It fails where that cannot be told now.
	Named func(*v1alpha1.IPPool) ([]string, error)
	// Parent finds an interface of this node by its name. It fails as Named does.
	Parent func(name string) (index int, exists bool, err error)
	// Watch begins to watch an address on a parent.
	Watch func(parent int, addr netip.Addr, p segment.ProbeParams) (Watch, error)
	// Held tells whether a pod of this node holds an address on a parent, with
	// which MAC; Sighted, whether somebody was just heard to speak for it.
	Held    func(parent int, addr netip.Addr) (net.HardwareAddr, bool)
	Sighted func(parent int, addr netip.Addr) bool
	// Share is this agent's place among the agents.
	Share func() ipam.Share
	// GiveWay waits while ADDs are under way, for a while.
	GiveWay func()
	// Timing of the probes; nil means that of the standards.
	Timing func(netip.Addr) segment.Timing

	Metrics Metrics
	Events  events.EventRecorder
	Log     logr.Logger
	Clock   clock.Clock
}

// Keeper keeps the Warm leases of this node. Safe for concurrent use.
type Keeper struct {
	Options
	pairs *pairs
	// wake is full when something may have changed since the keeper looked.
	wake chan struct{}
	// unanswered is how often a step was not answered. It belongs to Run.
	unanswered map[Step]int

	mu    sync.Mutex
	items map[string]*item
	// counted are the pools that WarmLeases was told of.
	counted map[string]bool
}

// New returns a Keeper that goes on with the pairs of the journal. Its leases
// are looked after while Run runs.
func New(o Options) *Keeper {
	if o.Timing == nil {
		o.Timing = segment.TimingFor
	}
	return &Keeper{
		Options: o, pairs: newPairs(o.Journal.Pairs()), wake: make(chan struct{}, 1), unanswered: map[Step]int{},
		items: map[string]*item{}, counted: map[string]bool{},
	}
}

// Wake tells that a pool, a lease, the node or a reservation has changed.
func (k *Keeper) Wake() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run keeps what Plan wants to be kept, until ctx ends. The leases stay, for
// the next agent to prove anew. Call it once.
func (k *Keeper) Run(ctx context.Context) error {
	var attending sync.WaitGroup
	defer attending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	retry, told := retryFirst, ""
	for {
		wait := lookEvery
		if err := k.pass(ctx, &attending); err == nil {
			retry, told = retryFirst, ""
		} else {
			wait, retry = retry, min(2*retry, retryMost)
			// The same sentence each time would bury the others.
			if why := err.Error(); why != told && ctx.Err() == nil {
				told = why
				k.Log.Info("Warm leases are not as they should be; it is tried again", "why", why)
			}
		}
		if k.rest(ctx, wait, k.wake) {
			k.rest(ctx, gather, nil)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// rest waits, or tells that it was woken. It ends with ctx.
func (k *Keeper) rest(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool) {
	timer := k.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
		return true
	case <-timer.C():
		return false
	}
}

// Used tells that a pod of this node was given an address of a pool on a parent.
func (k *Keeper) Used(pool, parent string) {
	if k.pairs.use(Pair{pool, parent}, k.Clock.Now()) {
		k.Wake()
	}
}
