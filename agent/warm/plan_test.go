// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

var (
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	eth1  = Pair{"v4", "eth1"}
	eth2  = Pair{"v4", "eth2"}
	other = Pair{"other", "eth1"}
)

// facts are those of a node with a pool that wants two addresses and has room,
// used a moment ago by a pod on eth1.
func facts(change ...func(*Facts)) Facts {
	f := Facts{
		Now:   noon,
		Pools: map[string]Pool{"v4": {Warm: 2, Counted: true, Free: 90, Agents: 3, Has: all}},
		Pairs: []PairFact{{Pair: eth1, Exists: true, Used: Uses{Last: noon.Add(-time.Minute)}}},
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func all(netip.Addr) bool { return true }

// has gives the node a Warm lease of v4 on eth1.
func has(name string, c Condition, change ...func(*LeaseFact)) func(*Facts) {
	return func(f *Facts) {
		l := LeaseFact{Name: name, Addr: netip.MustParseAddr(name), Pair: eth1, Condition: c}
		for _, do := range change {
			do(&l)
		}
		f.Leases = append(f.Leases, l)
	}
}

func on(p Pair) func(*LeaseFact) { return func(l *LeaseFact) { l.Pair = p } }

func pool(change func(*Pool)) func(*Facts) {
	return func(f *Facts) {
		p := f.Pools["v4"]
		change(&p)
		f.Pools["v4"] = p
	}
}

func pair(change func(*PairFact)) func(*Facts) { return func(f *Facts) { change(&f.Pairs[0]) } }

// ago are the uses by pods that came so long ago, the last one first.
func ago(d ...time.Duration) (u Uses) {
	u.Last = noon.Add(-d[0])
	if len(d) > 1 {
		u.Before = noon.Add(-d[1])
	}
	return u
}

// automatic is a pool that does not say how many addresses are kept ready; the controller has chosen two.
func automatic(f *Facts) { pool(func(p *Pool) { p.Automatic = true })(f) }

// used says when pods got addresses of v4 on eth1, the last one first.
func used(d ...time.Duration) func(*Facts) { return pair(func(p *PairFact) { p.Used = ago(d...) }) }

func shed(name string, why Reason) Step { return Step{Do: Shed, Lease: name, Pair: eth1, Reason: why} }
func attend(name string) Step           { return Step{Do: Attend, Lease: name, Pair: eth1} }
func create(p Pair) Step                { return Step{Do: Create, Pair: p} }

func TestPlan(t *testing.T) {
	one, two := has("10.0.0.1", Ready), has("10.0.0.2", Ready)
	for _, c := range []struct {
		rule string
		of   Facts
		want []Step
	}{
		// What is kept.
		{"a pair that a pod used gets what its pool wants", facts(), []Step{create(eth1), create(eth1)}},
		{"what is ready counts", facts(one), []Step{create(eth1)}},
		{"what is being proven counts", facts(has("10.0.0.1", Unproven)), []Step{create(eth1)}},
		{"what an ADD has taken counts until it is bound", facts(has("10.0.0.1", Taken), two), nil},
		{"enough is enough", facts(one, two), nil},
		{"a lease of an agent before this one is proven again and counts", facts(has("10.0.0.1", Unknown)), []Step{attend("10.0.0.1"), create(eth1)}},
		{"each parent gets its own", facts(func(f *Facts) { f.Pairs = append(f.Pairs, PairFact{Pair: eth2, Exists: true, Used: Uses{Last: noon}}) }, one),
			[]Step{create(eth1), create(eth2), create(eth2)}},
		{"a pool that wants none gets none", facts(pool(func(p *Pool) { p.Warm = 0 })), nil},
		{"a pair that the pool names needs no pod", facts(pair(func(p *PairFact) { p.Used, p.Named = Uses{}, true })), []Step{create(eth1), create(eth1)}},
		{"a pair of a pool that is gone gets none", facts(pair(func(p *PairFact) { p.Pair = other })), nil},

		// A pool that does not say how many.
		{"the first pod of a pair makes it keep one", facts(automatic, used(time.Minute)), []Step{create(eth1)}},
		{"the second pod makes it keep two", facts(automatic, used(time.Minute, 2*time.Minute)), []Step{create(eth1), create(eth1)}},
		{"no pod, none", facts(automatic, pair(func(p *PairFact) { p.Used = Uses{} })), nil},
		{"a parent that the pool names is no pod", facts(automatic, pair(func(p *PairFact) { p.Used, p.Named = Uses{}, true })), nil},
		{"a pod that came an hour ago counts no more", facts(automatic, one, two, used(time.Minute, time.Hour)), []Step{shed("10.0.0.2", Surplus)}},
		{"after an hour without a pod all are given up", facts(automatic, one, two, used(time.Hour, time.Hour)),
			[]Step{shed("10.0.0.1", Unused), shed("10.0.0.2", Unused)}},
		{"two pods keep one where the controller has chosen one", facts(automatic, two, one, used(1, 2), pool(func(p *Pool) { p.Warm = 1 })),
			[]Step{shed("10.0.0.2", Surplus)}},
		{"none where it has chosen none", facts(automatic, one, used(1, 2), pool(func(p *Pool) { p.Warm = 0 })), []Step{shed("10.0.0.1", Surplus)}},
		{"each parent keeps for its own pods", facts(automatic, used(1, 2), func(f *Facts) {
			f.Pairs = append(f.Pairs, PairFact{Pair: eth2, Exists: true, Used: ago(1)})
		}), []Step{create(eth1), create(eth1), create(eth2)}},
		{"a pool that says how many needs one pod", facts(used(time.Minute)), []Step{create(eth1), create(eth1)}},

		// What is too many.
		{"of too many those are kept that are ready", facts(has("10.0.0.1", Unproven), two, has("10.0.0.3", Ready)), []Step{shed("10.0.0.1", Surplus)}},
		{"a pool that wants fewer gets the others back", facts(one, two, pool(func(p *Pool) { p.Warm = 1 })), []Step{shed("10.0.0.2", Surplus)}},
		{"a pool that wants none any more gets all back", facts(one, two, pool(func(p *Pool) { p.Warm = 0 })),
			[]Step{shed("10.0.0.1", Surplus), shed("10.0.0.2", Surplus)}},
		{"what an ADD has taken is not given up", facts(has("10.0.0.1", Taken), pool(func(p *Pool) { p.Warm = 0 })), nil},

		// Pairs that are not used.
		{"a pair that no pod has used for an hour is given up", facts(one, pair(func(p *PairFact) { p.Used = ago(time.Hour) })), []Step{shed("10.0.0.1", Unused)}},
		{"not a moment before", facts(one, two, pair(func(p *PairFact) { p.Used = ago(time.Hour - time.Second) })), nil},
		{"a pair that was never learnt is given up", facts(func(f *Facts) { f.Pairs = nil }, has("10.0.0.1", Unknown)), []Step{shed("10.0.0.1", Unused)}},
		{"a pair whose parent is gone is given up", facts(one, pair(func(p *PairFact) { p.Exists = false })), []Step{shed("10.0.0.1", Unused)}},
		{"also if the pool names it", facts(one, pair(func(p *PairFact) { p.Exists, p.Named = false, true })), []Step{shed("10.0.0.1", Unused)}},

		// Others may need the addresses more.
		{"a scarce pool gets all back and gives none", facts(one, pool(func(p *Pool) { p.Scarce = true })), []Step{shed("10.0.0.1", Scarce)}},
		{"a full pool gets all back, whether it is called scarce or not", facts(one, pool(func(p *Pool) { p.Free = 0 })), []Step{shed("10.0.0.1", Scarce)}},
		{"a pool that nobody has counted yet gives none and gets none back", facts(one, pool(func(p *Pool) { p.Counted, p.Free = false, 0 })), nil},
		{"none is made where fewer would be left than all agents keep ready", facts(pool(func(p *Pool) { p.Free = 6 })), nil},
		{"one is made where as many would be left", facts(pool(func(p *Pool) { p.Free = 7 })), []Step{create(eth1)}},
		{"an agent that nobody has counted yet counts itself", facts(pool(func(p *Pool) { p.Agents, p.Free = 0, 3 })), []Step{create(eth1)}},
		{"the parents of a pool share what is left", facts(pool(func(p *Pool) { p.Free = 9 }),
			func(f *Facts) { f.Pairs = append(f.Pairs, PairFact{Pair: eth2, Exists: true, Used: Uses{Last: noon}}) }), []Step{create(eth1), create(eth1), create(eth2)}},
		{"what is there is kept where none is made", facts(one, pool(func(p *Pool) { p.Free = 5 })), nil},

		// Where no pod will come from.
		{"a node that is not Ready keeps what it has, and makes no more", facts(one, func(f *Facts) { f.Down = true }), nil},
		{"one host answers for many addresses of the pool: the node keeps what it has", facts(one, pair(func(p *PairFact) { p.Paused = true })), nil},
		{"a cordoned node gives all back", facts(one, func(f *Facts) { f.Cordoned = true }), []Step{shed("10.0.0.1", Cordoned)}},
		{"a disabled pool gets all back", facts(one, pool(func(p *Pool) { p.Disabled = true })), []Step{shed("10.0.0.1", PoolDisabled)}},
		{"a pool that is being deleted gets all back", facts(one, pool(func(p *Pool) { p.Deleting = true })), []Step{shed("10.0.0.1", PoolGone)}},
		{"a pool that is gone gets all back", facts(has("10.0.0.1", Ready, on(other))), []Step{
			{Do: Shed, Lease: "10.0.0.1", Pair: other, Reason: PoolGone}, create(eth1), create(eth1)}},
		{"a pool for other nodes gets all back", facts(one, pool(func(p *Pool) { p.Elsewhere = true })), []Step{shed("10.0.0.1", NotThisNode)}},
		{"a pool that is not Ready gives none, and what is there is kept", facts(one, pool(func(p *Pool) { p.NotReady = true })), nil},
		{"an address that left the pool, or was reserved, is given up and another made", facts(one, two,
			pool(func(p *Pool) { p.Has = func(a netip.Addr) bool { return a != netip.MustParseAddr("10.0.0.1") } })),
			[]Step{shed("10.0.0.1", NotInPool), create(eth1)}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			check.Same(t, Plan(c.of), c.want, "plan")
		})
	}
}

func TestPairsAreJournalledSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 60 {
			r.keeper.Used("v4", "eth1")
			r.pass(10 * time.Second)
			r.wake()
		}
		check.That(t, r.book.written() <= 2 && len(r.book.all()) == 1 && r.book.all()[0].Parent == "eth1",
			"%d writes, journalled %v", r.book.written(), r.book.all())
		r.pass(2 * time.Hour)
		check.That(t, len(r.book.all()) == 0, "journalled %v", r.book.all())
	})
}

// unsetWarm makes the pool one that does not say how many addresses are kept ready.
func unsetWarm(p *v1alpha1.IPPool) { p.Spec.Warm, p.Status.Stock = nil, 2 }

func TestAPoolThatSaysNothingKeepsAsManyAsPodsCame(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.pass(time.Minute)
		r.want()
		r.keeper.Used("v4", "eth1")
		r.pass(proofTakes + time.Second)
		r.ready("10.0.0.2")
		r.pass(30 * time.Minute)
		r.keeper.Used("v4", "eth1")
		r.pass(proofTakes + time.Second)
		r.ready("10.0.0.2", "10.0.0.3")

		r.restart(thisSession)
		r.pass(proofTakes + time.Second)
		r.ready("10.0.0.2", "10.0.0.3")

		r.pass(30 * time.Minute)
		r.want(warm2)
		r.pass(30 * time.Minute)
		r.want()
		check.List(t, r.told().lost, []string{string(Surplus), string(Unused)}, "lost")
	}, v4(unsetWarm))
}

func TestAPoolThatSaysNothingGetsItsAddressesBackWhenItHasFew(t *testing.T) {
	inBubble(t, func(_ *testing.T, r *rig) {
		r.keeper.Used("v4", "eth1")
		r.warmed()
		r.changePool(func(p *v1alpha1.IPPool) { p.Status.Stock = 1 })
		r.want(warm2)
		r.changePool(func(p *v1alpha1.IPPool) { p.Status.Stock = 0 })
		r.want()
		r.changePool(func(p *v1alpha1.IPPool) { p.Status.Stock = 2 })
		r.pass(proofTakes + time.Second)
		n := len(r.leases())
		check.That(r.t, n == 2, "%d leases, want 2", n)
	}, v4(unsetWarm))
}

func TestAPairWithOneUseIsOnePod(t *testing.T) {
	now := time.Unix(1, 0)
	p := newPairs([]attachment.Pair{{Pool: "v4", Parent: "eth1", Used: now}})
	check.Equal(t, p.all()[eth1].recent(now.Add(time.Minute)), 1, "pods")
}

// slowBook calls something while it writes.
type slowBook struct{ during func() }

func (slowBook) Get() ([]attachment.Pair, bool) { return nil, false }

func (b slowBook) Put([]attachment.Pair) error {
	b.during()
	return nil
}

// Each ADD is a use.
func TestNoUseWaitsForTheDisk(t *testing.T) {
	now := time.Unix(1, 0)
	p := newPairs([]attachment.Pair{{Pool: "a", Parent: "eth1", Used: now}})
	err := p.save(slowBook{func() {
		used := make(chan bool)
		go func() { used <- p.use(Pair{"b", "eth1"}, now) }()
		select {
		case <-used:
		case <-time.After(time.Minute):
			t.Error("a use waits for the journal")
		}
	}}, now)
	check.That(t, err == nil && len(p.all()) == 2, "%v, %v", p.all(), err)
}
