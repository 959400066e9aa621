// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// memory is the API server's part in memory: one lease per network and address.
type memory struct {
	mu             sync.Mutex
	leases         map[string]string // name → pool
	creates, lists int
	// history is told of each lease and its end in their order; nil is allowed.
	history *history
	// onList and onCreate are called, unlocked, before the call takes effect.
	onList   func()
	onCreate func(netip.Addr) error
}

func newMemory(pool string, taken ...string) *memory {
	m := &memory{leases: map[string]string{}}
	m.lease(pool, taken...)
	return m
}

func (m *memory) lease(pool string, addrs ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range addrs {
		m.leases[nameOf(netip.MustParseAddr(a))] = pool
	}
}

// nameOf names a lease in the network of the pools that candidate makes.
func nameOf(addr netip.Addr) string { return v1alpha1.LeaseName("red", addr) }

func (m *memory) free(addr netip.Addr) { m.delete(nameOf(addr)) }

func (m *memory) delete(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leases, name)
	m.history.add(name, -1)
}

func (m *memory) Create(ctx context.Context, r lease.Request) (*v1alpha1.IPLease, error) {
	if m.onCreate != nil {
		if err := m.onCreate(r.Addr); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.creates++
	l := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: r.Addr.String(), Pool: r.Pool}}
	l.Name = v1alpha1.LeaseName(r.Network, r.Addr)
	if pool, ok := m.leases[l.Name]; ok {
		l.Spec.Pool = pool
		return nil, &lease.TakenError{Lease: l}
	}
	m.leases[l.Name] = r.Pool
	m.history.add(l.Name, +1)
	return l, nil
}

func (m *memory) TakenIn(ctx context.Context, pool string) (map[netip.Addr]struct{}, error) {
	if m.onList != nil {
		m.onList()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	taken := map[netip.Addr]struct{}{}
	for name, p := range m.leases {
		if p != pool {
			continue
		}
		_, addr, err := v1alpha1.ParseLeaseName(name)
		if err != nil {
			return nil, err
		}
		taken[addr] = struct{}{}
	}
	return taken, nil
}

// agent returns an allocator with a clock that stands and chance that repeats itself.
func agent(leases Leases, last map[string]netip.Addr) *Allocator {
	seed := uint64(0)
	return New(Options{
		Leases: leases, Last: last, Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		Rand: func() *rand.Rand {
			seed++
			return rand.New(rand.NewPCG(seed, 1))
		},
	})
}

// candidate is a pool of 10.0.0.0/24 that marks addresses as in use.
func candidate(t testing.TB, name string, inUse []string, entries ...string) ipam.Candidate {
	t.Helper()
	set := check.Value(poolset.Parse(entries))(t)
	subnet := netip.MustParsePrefix("10.0.0.0/24")
	var bits poolset.Bitmap
	for _, a := range inUse {
		offset, _ := poolset.Offset(subnet, netip.MustParseAddr(a))
		bits = bits.Mark(offset)
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Network: "red"}}
	pool.Status.InUse = poolset.EncodeBitmap(bits)
	return ipam.Candidate{Pool: pool, Subnet: subnet, Set: set}
}

// trial is a wish, and what its caller does with the candidates.
type trial struct {
	Need
	// before comes before each create, try after it; nil is allowed.
	before func() error
	try    func(*v1alpha1.IPLease) (conflict bool, err error)
}

// onDemand takes candidates as an ADD does, until one stands the trial.
func onDemand(ctx context.Context, a *Allocator, t trial) (*v1alpha1.IPLease, *v1alpha1.IPPool, error) {
	for c, err := range a.Candidates(ctx, t.Need) {
		if err != nil {
			return nil, nil, err
		}
		if t.before != nil {
			if err := t.before(); err != nil {
				return nil, nil, err
			}
		}
		l, err := c.Lease(ctx, t.Holder)
		if errors.Is(err, lease.ErrTaken) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if t.try == nil {
			return l, c.Pool, nil
		}
		if conflict, err := t.try(l); err != nil || !conflict {
			return l, c.Pool, err
		}
	}
	return nil, nil, errors.New("the candidates ended without an error")
}

// wishFor asks for an address of the first pool that has one; whoever gets one keeps it.
func wishFor(pools ...ipam.Candidate) trial {
	return trial{Need: Need{
		Family: ipam.Family{Source: "the CNI configuration", Interface: "pod shop/web-0 interface eth0", Pools: pools},
		Holder: v1alpha1.Holder{Namespace: "shop", Pod: "web-0", ContainerID: "c1", Interface: "eth0"},
	}}
}
