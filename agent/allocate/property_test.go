// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// seedVariable is the environment variable that repeats one seed of the property.
const seedVariable = "FENCELINE_TEST_SEED"

// TestProperty: for random pools, reservations, affinities, pods and concurrent
// agents, beside Warm and Retained leases, no two live leases share an address,
// every reason of every refusal is true, and an address is found whenever one
// is allowed.
func TestProperty(t *testing.T) {
	var all tally
	for _, seed := range seeds() {
		w := newWorld(seed)
		m := newMemory("")
		m.history = w.history
		all.add(w.run(t, 3, 3, 8, func(int) (Leases, func(*v1alpha1.IPLease) error) {
			return m, func(l *v1alpha1.IPLease) error { m.delete(l.Name); return nil }
		}))
		if t.Failed() {
			t.Fatalf("repeat with %s=%d", seedVariable, seed)
		}
	}
	all.check(t)
}

// seeds are always the same ones and some new ones, or the one to repeat.
func seeds() []uint64 {
	const fixed, fresh = 80, 40
	if seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		return []uint64{seed}
	}
	all := make([]uint64, fixed+fresh)
	for i := range all {
		all[i] = uint64(i)
		if i >= fixed {
			all[i] = rand.Uint64()
		}
	}
	return all
}

// tally is how interfaces fared: of those served, how many with an address that
// was Warm or Retained before, and how often which reason was told.
type tally struct {
	served, warm, kept, refused int
	reasons                     map[ipam.Reason]int
}

func (a *tally) add(b tally) {
	a.served, a.warm, a.kept, a.refused = a.served+b.served, a.warm+b.warm, a.kept+b.kept, a.refused+b.refused
	for reason, n := range b.reasons {
		a.tell(reason, n)
	}
}

func (a *tally) tell(reason ipam.Reason, n int) {
	if a.reasons == nil {
		a.reasons = map[ipam.Reason]int{}
	}
	a.reasons[reason] += n
}

// check demands that all was met often enough to mean something.
func (a *tally) check(t *testing.T) {
	t.Logf("%d interfaces served, %d of them by Warm and %d by Retained leases, %d refused: %v", a.served, a.warm, a.kept, a.refused, a.reasons)
	if a.served < 50 || a.warm < 10 || a.kept < 5 || a.refused < 50 || a.reasons[ipam.Exhausted] < 10 || len(a.reasons) < 8 {
		t.Errorf("the random worlds have become too easy or too hard")
	}
}

// run lets the workers of some agents give random pods their addresses and
// take them away again, all at the same time. connect returns an agent's access.
func (w *world) run(t *testing.T, agents, workers, pods int, connect func(int) (Leases, func(*v1alpha1.IPLease) error)) tally {
	t.Helper()
	reserved := check.Value(poolset.Parse(w.reserved))(t)
	all := &ledger{live: map[string]string{}}
	var wg sync.WaitGroup
	for index := range agents {
		leases, end := connect(index)
		if index == 0 {
			w.retainBefore(t, leases, all)
		}
		a := New(Options{Leases: leases, Clock: realClock{}})
		stock := &stock{}
		for worker := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(w.seed, uint64(index*workers+worker)))
				p := tenant{
					world: w, ledger: all, t: t, a: a, end: end, stock: stock, reserved: reserved,
					node: fmt.Sprintf("n%d", index), name: fmt.Sprintf("%d-%d", index, worker), share: ipam.Share{Index: r.IntN(agents), Count: agents},
				}
				for i := range pods {
					p.keepWarm(r)
					p.start(r, fmt.Sprintf("pod-%d-%d-%d", index, worker, i))
					runtime.Gosched()
					if len(p.held) > 2 || len(p.held) > 0 && chance(r, 30) {
						p.stop(r)
					}
				}
				for len(p.held) > 0 {
					p.stop(r)
				}
			})
		}
	}
	wg.Wait()
	return all.sum
}
