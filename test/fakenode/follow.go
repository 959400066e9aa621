// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// follow is a watch of the leases of a pool.
type follow struct {
	pool    string
	changes chan change
}

type change struct {
	addr   netip.Addr
	leased bool
}

// Follow reports the leases of a pool, as waiting.Leases does with a real API server.
func (m *API) Follow(ctx context.Context, pool string, n waiting.News) error {
	f := &follow{pool, make(chan change, 1000)}
	m.mu.Lock()
	if err := m.enter("watch", nil, ""); err != nil {
		m.mu.Unlock()
		return err
	}
	taken := map[netip.Addr]struct{}{}
	for _, o := range m.Objects {
		if l, ok := o.(*v1alpha1.IPLease); ok && l.Spec.Pool == pool {
			taken[l.Spec.Addr()] = struct{}{}
		}
	}
	m.follows[f] = true
	m.mu.Unlock()
	n.Listed(taken)
	for {
		select {
		case <-ctx.Done():
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.follows, f)
			return ctx.Err()
		case c, open := <-f.changes:
			if !open {
				return errors.New("the connection was lost")
			}
			n.Changed(c.addr, c.leased)
		}
	}
}

// Follows returns the number of open watches.
func (m *API) Follows() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.follows)
}

// tell reports a change to the watches. It requires mu.
func (m *API) tell(o client.Object, leased bool) {
	l, ok := o.(*v1alpha1.IPLease)
	if !ok {
		return
	}
	for f := range m.follows {
		if f.pool == l.Spec.Pool {
			f.changes <- change{l.Spec.Addr(), leased}
		}
	}
}

// Waits counts the ADDs that wait for an address.
type Waits struct {
	noMetrics
	now atomic.Int64
	// OnStep sees the steps of ADDs, and OnSilence the pools whose gateways did not answer. They may be nil.
	OnStep, OnSilence func(string)
}

// Step implements assembly.Metrics.
func (w *Waits) Step(step string, _ time.Duration) { tell(w.OnStep, step) }

// GatewayUnanswered implements acquire.Metrics.
func (w *Waits) GatewayUnanswered(pool string) { tell(w.OnSilence, pool) }

func tell(to func(string), what string) {
	if to != nil {
		to(what)
	}
}

// Waiting implements waiting.Metrics. Tests have one full pool.
func (w *Waits) Waiting(_ string, adds int) { w.now.Store(int64(adds)) }

// Now returns the number of ADDs that wait now.
func (w *Waits) Now() int { return int(w.now.Load()) }
