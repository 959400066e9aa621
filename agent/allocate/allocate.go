// Package allocate finds a free address by creating its lease: it joins the
// order of package ipam with the truth of package lease.
package allocate

import (
	"context"
	"errors"
	"net/netip"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Leases is the part of lease.Store that allocation needs.
type Leases interface {
	Create(ctx context.Context, r lease.Request) (*v1alpha1.IPLease, error)
	TakenIn(ctx context.Context, pool string) (map[netip.Addr]struct{}, error)
}

// Outcome is what became of a lease just created.
type Outcome int

const (
	// Granted: the address is the pod's.
	Granted Outcome = iota
	// Conflict: somebody spoke for it; another address is tried.
	Conflict
)

// Wish is what one interface needs of one family.
type Wish struct {
	Family ipam.Family
	Parent string
	Holder v1alpha1.Holder
	// Retention of a static address.
	Retention *v1alpha1.LeaseRetention
	Share     ipam.Share
	// Sighted and Taken as in ipam.View; nil is allowed.
	Sighted, Taken func(*v1alpha1.IPPool, netip.Addr) bool
	// Before is called before each create, to journal the intent; nil is allowed.
	Before func(ctx context.Context, pool *v1alpha1.IPPool, addr netip.Addr) error
	// Try guards, probes and claims the address of a lease just created. The lease is Try's from the
	// call on, whatever it returns: on Conflict it has set it aside, on an error it has freed it.
	Try func(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease) (Outcome, error)
}

// Options of an Allocator. Seed is for tests; 0 seeds at random.
type Options struct {
	Leases Leases
	Clock  clock.PassiveClock
	// Last is where the rotations go on, by pool: what Last returned before a restart.
	Last map[string]netip.Addr
	Seed uint64
}

// Allocator hands out addresses of pools on this node. Safe for concurrent use.
type Allocator struct{ o Options }

// New returns an Allocator.
func New(o Options) *Allocator { return &Allocator{o} }

// OnDemand creates leases in rotating order, pool by pool, until Try grants
// one. The error is a *ipam.NoPoolError when every pool is exhausted, which
// is said only after the API server's list shows no free address; a
// *lease.TakenError when the requested address is taken.
func (a *Allocator) OnDemand(ctx context.Context, w Wish) (*v1alpha1.IPLease, *v1alpha1.IPPool, error) {
	return nil, nil, errors.ErrUnsupported
}

// Freed tells that this node has freed an address, so that it cools down.
func (a *Allocator) Freed(pool string, addr netip.Addr) {}

// Last returns where the rotations stand, by pool, for the journal.
func (a *Allocator) Last() map[string]netip.Addr { return nil }
