// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/agent/warm"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Warm is a stock in memory. The test decides which addresses are proven and which have doubts.
type Warm struct {
	mu     sync.Mutex
	leases []warm.Stocked
	// taken and Gone are names of leases, Pairs the pools and parents that were used.
	taken map[string]bool
	Gone  []string
	Pairs []string
	// Doubts are the doubts since the leases were taken, by name.
	Doubts map[string]segment.Doubt
}

func NewWarm() *Warm { return &Warm{taken: map[string]bool{}} }

func (w *Warm) Take(wish warm.Wish) (warm.Stocked, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.leases {
		ready := l.Ready && l.Spec.Parent == wish.Parent
		switch {
		case w.taken[l.Name], slices.Contains(w.Gone, l.Name), l.Spec.Pool != wish.Pool:
		case wish.Addr.IsValid() && wish.Addr.String() != l.Spec.Address, !wish.Has(l.Spec.Addr()):
		case ready || wish.Any:
			w.taken[l.Name] = true
			return warm.Stocked{IPLease: l.IPLease, Ready: ready}, true
		}
	}
	return warm.Stocked{}, false
}

func (w *Warm) Doubt(l warm.Stocked) (segment.Doubt, segment.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer := segment.Answer{}
	if w.Doubts[l.Name] == segment.DoubtSpoken {
		answer = segment.Answer{Conflict: true, MAC: Stranger, Source: segment.SourceObserver}
	}
	return w.Doubts[l.Name], answer
}

// Hear raises a doubt about a lease. It replaces all earlier doubts.
func (w *Warm) Hear(name string, d segment.Doubt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Doubts = map[string]segment.Doubt{name: d}
}

func (w *Warm) PutBack(l warm.Stocked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.taken, l.Name)
}

func (w *Warm) Ended(l warm.Stocked) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Gone = append(w.Gone, l.Name)
}

func (w *Warm) Used(pool, parent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Pairs = append(w.Pairs, pool+" on "+parent)
}

// InStock reports whether the next ADD may take a lease.
func (w *Warm) InStock(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.taken[name] && !slices.Contains(w.Gone, name)
}

// WarmLease puts a Warm lease of this node into the API server and the stock.
func (r *Node) WarmLease(addr string, ready bool, change ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	r.T.Helper()
	a := netip.MustParseAddr(addr)
	pool := "v4"
	if a.Is6() {
		pool = "v6"
	}
	l := Held(addr, func(s *v1alpha1.IPLeaseSpec) {
		s.Pool, s.State, s.NodeName, s.Session, s.Parent, s.Holder = pool, v1alpha1.StateWarm, ThisNode, r.Life, "eth1", nil
	})
	for _, c := range change {
		c(&l.Spec)
	}
	r.API.Put(l)
	r.Warm.leases = append(r.Warm.leases, warm.Stocked{IPLease: l, Ready: ready})
	return l
}

// Warmed makes a pool keep two addresses ready on each node.
func Warmed(p *v1alpha1.IPPool) *v1alpha1.IPPool {
	p.Spec.Warm = new(int64(2))
	return p
}

// Counted gives a pool the status that the controller publishes.
func Counted(p *v1alpha1.IPPool, total, used int64) *v1alpha1.IPPool {
	p.Status.Total, p.Status.Used, p.Status.Free = total, used, total-used
	return p
}

func CountCalls(t *testing.T, r *Node, fn func()) (creates, updates int) {
	t.Helper()
	creates, updates = r.Calls("create"), r.Calls("update")
	fn()
	return r.Calls("create") - creates, r.Calls("update") - updates
}
