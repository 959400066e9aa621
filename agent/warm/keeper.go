// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// lookEvery is the longest time between two looks. Unused pairs and new parents make no event.
	lookEvery = 30 * time.Second
	// gather is the pause before a look after an event. Changes come in groups, and in a roll-out
	// new pods take Warm leases before the keeper replaces these leases.
	gather = 500 * time.Millisecond
	// retryFirst and retryMost are the first and the longest wait before a retry.
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

// Metrics counts Warm leases. Its methods may be called concurrently.
type Metrics interface {
	// WarmLeases sets the numbers of leases of a pool. Both 0 removes the pool.
	WarmLeases(pool string, ready, unproven int)
	// WarmTaken counts ADDs that needed a ready lease, by success.
	WarmTaken(pool string, got bool)
	// WarmLost counts proofs that were voided and leases that were released.
	WarmLost(pool, reason string)
	Conflict(pool string, source segment.Source)
}

// Options of a Keeper. All are required.
type Options struct {
	event.Reporter
	// Cache reads from the agent's filtered caches.
	Cache     client.Reader
	Leases    *lease.Store
	Allocator *allocate.Allocator
	Journal   Journal
	// Named returns the parents that a pool names for this node. The interfaces need not exist. It
	// fails if the names are unknown at present.
	Named func(*v1alpha1.IPPool) ([]string, error)
	// Carries reports whether an ADD on a parent may get an address of a pool.
	Carries func(pool *v1alpha1.IPPool, parent int) bool
	// Parent finds an interface of this node by its name. It fails if the kernel cannot be asked.
	Parent func(name string) (index int, exists bool, err error)
	// Watch starts to watch an address on a parent.
	Watch func(parent int, addr netip.Addr, p segment.ProbeParams) (Watch, error)
	// Held reports whether a pod of this node has an address on a parent, and the pod's MAC.
	Held func(parent int, addr netip.Addr) (net.HardwareAddr, bool)
	// Sighted reports whether a recent frame shows that an address is in use.
	Sighted func(parent int, addr netip.Addr) bool
	// Share returns the share of each pool that this agent prefers.
	Share func() ipam.Share
	// GiveWay waits until no ADD is under way, for a limited time.
	GiveWay func()
	// Foreign are the foreign hosts that have answered on this node.
	Foreign *segment.ForeignHosts

	Metrics Metrics
}

// Keeper keeps the Warm leases of this node. Safe for concurrent use.
type Keeper struct {
	Options
	pairs *pairs
	// wake holds an element if facts may have changed since the last look.
	wake loop.Wake
	// unanswered counts the failures of a step in an outage of the API server. Only Run uses it.
	unanswered map[Step]int

	mu    sync.Mutex
	items map[string]*item
	// paused are the pairs for which no lease is created, because one host answers for many addresses.
	paused map[Pair]pause
	// counted are the pools whose numbers of Warm leases were given to WarmLeases.
	counted map[string]bool
}

// New returns a Keeper with the pairs of the journal. It keeps leases while Run runs.
func New(o Options) *Keeper {
	remembered, _ := o.Journal.Get()
	return &Keeper{
		Options: o, pairs: newPairs(remembered), wake: loop.NewWake(), unanswered: map[Step]int{},
		items: map[string]*item{}, paused: map[Pair]pause{}, counted: map[string]bool{},
	}
}

// Wake makes the keeper look again soon, after a change of a pool, lease, node or reservation.
func (k *Keeper) Wake() { k.wake.Up() }

// Run carries out Plan until ctx ends. The next agent proves the leases again. Call it once.
func (k *Keeper) Run(ctx context.Context) error {
	var attending sync.WaitGroup
	defer attending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := loop.Loop{Clock: k.Clock, Period: lookEvery, Wake: k.wake, Gather: gather, First: retryFirst, Most: retryMost}
	l.Failed = func(err error) {
		k.Log.Info("cannot create or release Warm leases as planned; trying again", "why", err.Error())
	}
	return l.Try(ctx, func(ctx context.Context) error { return k.pass(ctx, &attending) })
}

// Used records that a pod got an address of a pool on a parent that could have been Warm.
func (k *Keeper) Used(pool, parent string) {
	if k.pairs.use(Pair{pool, parent}, k.Clock.Now()) {
		k.Wake()
	}
}
