package allocate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// seedVariable is the environment variable that repeats one seed of the property.
const seedVariable = "FENCELINE_TEST_SEED"

// TestProperty: for random pools, affinities, pods and concurrent agents no two
// live leases share an address, every refusal has a true reason, and an
// address is found whenever one is allowed.
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

// tally is how interfaces fared.
type tally struct{ served, refused, exhausted int }

func (a *tally) add(b tally) {
	a.served, a.refused, a.exhausted = a.served+b.served, a.refused+b.refused, a.exhausted+b.exhausted
}

// check demands that all three were met often enough to mean something.
func (a *tally) check(t *testing.T) {
	t.Logf("%d interfaces served, %d refused, %d of them for exhaustion", a.served, a.refused, a.exhausted)
	if a.served < 50 || a.refused < 50 || a.exhausted < 10 {
		t.Errorf("the random worlds have become too easy or too hard")
	}
}

// run lets the workers of some agents give random pods their addresses and
// take them away again, all at the same time. connect returns an agent's access.
func (w *world) run(t *testing.T, agents, workers, pods int, connect func(int) (Leases, func(*v1alpha1.IPLease) error)) tally {
	t.Helper()
	reserved, err := ipam.ParseSet(w.reserved)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sum tally
	live := map[string]string{}
	var wg sync.WaitGroup
	for index := range agents {
		leases, end := connect(index)
		a := New(Options{Leases: leases, Clock: realClock{}})
		for worker := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(w.seed, uint64(index*workers+worker)))
				p := tenant{world: w, t: t, a: a, end: end, reserved: reserved, mu: &mu, sum: &sum, live: live}
				p.share = ipam.Share{Index: r.IntN(agents), Count: agents}
				for i := range pods {
					p.start(r, fmt.Sprintf("n%d", index), fmt.Sprintf("pod-%d-%d-%d", index, worker, i))
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
	return sum
}

// tenant is one worker of an agent with the interfaces of its pods.
type tenant struct {
	*world
	t        *testing.T
	a        *Allocator
	end      func(*v1alpha1.IPLease) error
	reserved ipam.Set
	share    ipam.Share
	held     [][]*v1alpha1.IPLease

	mu   *sync.Mutex
	sum  *tally
	live map[string]string // lease → interface
}

// start asks for the addresses of each interface of a new pod.
func (p *tenant) start(r *rand.Rand, node, name string) {
	for _, ask := range p.pod(r, node, name) {
		j := judgement{world: p.world, ask: ask, from: p.history.now()}
		leases, err := p.add(r, ask)
		j.to = p.history.now()
		var wrong error
		if err == nil {
			wrong = j.granted(leases)
		} else {
			wrong = j.refused(err)
		}
		if wrong != nil {
			p.t.Errorf("seed %d, %s %s: %v, but: %v", p.seed, name, ask.Interface, err, wrong)
		}
		p.count(err)
		for _, l := range leases {
			p.hold(l, name+" "+ask.Interface)
		}
		if err != nil {
			p.release(r, leases) // all or nothing
		} else {
			p.held = append(p.held, leases)
		}
	}
}

// add gets what an interface asks for; with an error, what it got until then.
func (p *tenant) add(r *rand.Rand, ask ask) (leases []*v1alpha1.IPLease, err error) {
	choice, err := ipam.ChoosePools(ask.Request, p.pools, p.reserved)
	if err != nil {
		return nil, err
	}
	lies := r.Uint64()
	for _, f := range choice.Families {
		l, _, err := p.a.OnDemand(p.t.Context(), Wish{
			Family: f, Share: p.share,
			Holder: v1alpha1.Holder{Namespace: ask.Pod.Namespace, Pod: ask.Pod.Name, ContainerID: ask.Pod.Name, Interface: ask.Interface},
			// A hint that is wrong about a quarter of the addresses.
			Taken: func(_ *v1alpha1.IPPool, a netip.Addr) bool {
				return (lies>>(a.AsSlice()[len(a.AsSlice())-1]%32))&3 == 0
			},
			Try: func(_ context.Context, _ *v1alpha1.IPPool, l *v1alpha1.IPLease) (Outcome, error) {
				if isStranger(netip.MustParseAddr(l.Spec.Address)) {
					return Conflict, nil // its lease stays, set aside
				}
				return Granted, nil
			},
		})
		if err != nil {
			return leases, err
		}
		leases = append(leases, l)
	}
	return leases, nil
}

func (p *tenant) hold(l *v1alpha1.IPLease, who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other, ok := p.live[l.Name]; ok {
		p.t.Errorf("seed %d: %s got %s of %s", p.seed, who, l.Name, other)
	}
	p.live[l.Name] = who
}

// stop ends one of the interfaces.
func (p *tenant) stop(r *rand.Rand) {
	i := r.IntN(len(p.held))
	p.release(r, p.held[i])
	p.held = append(p.held[:i], p.held[i+1:]...)
}

func (p *tenant) release(r *rand.Rand, leases []*v1alpha1.IPLease) {
	for _, l := range leases {
		p.mu.Lock()
		delete(p.live, l.Name)
		p.mu.Unlock()
		if err := p.end(l); err != nil {
			p.t.Error(err)
		}
		// Some leases end without their node's doing.
		if chance(r, 80) {
			p.a.Freed(l.Spec.Pool, netip.MustParseAddr(l.Spec.Address))
		}
	}
}

func (p *tenant) count(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.sum.served++
		return
	}
	p.sum.refused++
	if none := (*ipam.NoPoolError)(nil); errors.As(err, &none) && none.Exhausted() {
		p.sum.exhausted++
	}
}
