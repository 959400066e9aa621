package holder

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// memWarm is a stock in memory: what is proven and watched is the test's to say.
type memWarm struct {
	mu     sync.Mutex
	leases []WarmLease
	// taken and ended by name, and the pairs that were used.
	taken map[string]bool
	ended []string
	used  []string
	// doubts have come up since the leases were taken, by name.
	doubts map[string]segment.Doubt
}

func newMemWarm() *memWarm { return &memWarm{taken: map[string]bool{}} }

func (w *memWarm) Take(wish WarmWish) (WarmLease, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.leases {
		ready := l.Ready && l.Spec.Parent == wish.Parent
		switch {
		case w.taken[l.Name], slices.Contains(w.ended, l.Name), l.Spec.Pool != wish.Pool:
		case wish.Addr.IsValid() && wish.Addr.String() != l.Spec.Address:
		case ready || wish.Any:
			w.taken[l.Name] = true
			return WarmLease{l.IPLease, ready}, true
		}
	}
	return WarmLease{}, false
}

func (w *memWarm) Doubt(l WarmLease) (segment.Doubt, segment.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	answer := segment.Answer{}
	if w.doubts[l.Name] == segment.DoubtSpoken {
		answer = segment.Answer{Conflict: true, MAC: stranger, Source: segment.SourceObserver}
	}
	return w.doubts[l.Name], answer
}

// hear raises a doubt about a lease.
func (w *memWarm) hear(name string, d segment.Doubt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doubts = map[string]segment.Doubt{name: d}
}

func (w *memWarm) PutBack(l WarmLease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.taken, l.Name)
}

func (w *memWarm) Ended(l WarmLease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, l.Name)
}

func (w *memWarm) Used(pool, parent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.used = append(w.used, pool+" on "+parent)
}

// inStock tells whether the next ADD may take a lease.
func (w *memWarm) inStock(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.taken[name] && !slices.Contains(w.ended, name)
}

// warmLease puts a Warm lease of this node into the API server and the stock.
func (r *rig) warmLease(addr string, ready bool, change ...func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	r.t.Helper()
	a := netip.MustParseAddr(addr)
	pool := "v4"
	if a.Is6() {
		pool = "v6"
	}
	l := held(addr, func(s *v1alpha1.IPLeaseSpec) {
		s.Pool, s.State, s.NodeName, s.Session, s.Parent, s.Holder = pool, v1alpha1.StateWarm, thisNode, r.session, "eth1", nil
	})
	for _, c := range change {
		c(&l.Spec)
	}
	r.api.put(l)
	r.warm.leases = append(r.warm.leases, WarmLease{l, ready})
	return l
}

// warmed makes a pool keep two addresses ready on each node.
func warmed(p *v1alpha1.IPPool) *v1alpha1.IPPool {
	p.Spec.Warm = new(int64(2))
	return p
}

// counted gives a pool the status that the controller publishes.
func counted(p *v1alpha1.IPPool, total, used int64) *v1alpha1.IPPool {
	p.Status.Total, p.Status.Used, p.Status.Free = total, used, total-used
	return p
}

func countCalls(t *testing.T, r *rig, fn func()) (creates, updates int) {
	t.Helper()
	creates, updates = r.calls("create"), r.calls("update")
	fn()
	return r.calls("create") - creates, r.calls("update") - updates
}
