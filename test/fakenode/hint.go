// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/agent/waiting"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// mostFree is the most free addresses of which a hint tells.
const mostFree = 64

// hint returns the hint of a node whose ADDs wait, as the controller writes it, with all free addresses of the pools.
// It returns nil while the API server or the controller is away.
func (m *API) hint(waits []v1alpha1.PoolWait) *v1alpha1.LeaseHint {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Away || m.Mute {
		return nil
	}
	h := &v1alpha1.LeaseHint{Spec: v1alpha1.LeaseHintSpec{Waits: waits}}
	for _, w := range waits {
		pool, _ := m.Objects[KeyFor(&v1alpha1.IPPool{}, types.NamespacedName{Name: w.Pool})].(*v1alpha1.IPPool)
		if pool == nil {
			continue
		}
		set, _ := poolset.Addresses(pool)
		for i := uint64(0); i < set.Len() && len(h.Status.Free) < mostFree; i++ {
			name := v1alpha1.LeaseName(pool.Spec.Network, set.At(i))
			if m.Objects[KeyFor(&v1alpha1.IPLease{}, types.NamespacedName{Name: name})] == nil {
				h.Status.Free = append(h.Status.Free, v1alpha1.FreeAddress{Pool: pool.Name, Address: set.At(i).String(), Version: m.ended[name]})
			}
		}
	}
	return h
}

// answer answers the ADDs of a queue that wait, after each change, until ctx ends.
func (m *API) answer(ctx context.Context, q *waiting.Queue) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.News:
		case <-m.changed:
		}
		if waits := q.Waits(); len(waits) > 0 {
			if h := m.hint(waits); h != nil {
				q.Hear(h)
			}
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
