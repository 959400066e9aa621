package warm

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// pairLife is how long a pair is kept warm after the last pod that used it.
const pairLife = time.Hour

// Facts are everything that Plan looks at.
type Facts struct {
	Now time.Time
	// Cordoned: no pod will be started on this node.
	Cordoned bool
	// Down: the node is not Ready. The controller takes its leases after a while
	// (reclaim.nodeDown), so none is made.
	Down   bool
	Pools  map[string]Pool
	Pairs  []PairFact
	Leases []LeaseFact
}

// Pool is what is known of a pool.
type Pool struct {
	// Warm is how many addresses each node keeps ready on each parent.
	Warm int
	// Deleting, Disabled and Elsewhere (its affinity leaves this node out): the
	// pool serves no pod of this node. NotReady: nothing new is allocated from it.
	Deleting, Disabled, Elsewhere, NotReady bool
	// Scarce: the controller asks for Warm leases to be given up.
	Scarce bool
	// Counted: the controller has. Free addresses have no lease, and Agents are on
	// nodes that the pool allows.
	Counted      bool
	Free, Agents int64
	// Has tells whether the pool may hand out an address now.
	Has func(netip.Addr) bool
}

// Pair is a pool and a parent on which it is reached.
type Pair struct{ Pool, Parent string }

// PairFact is what is known of a pair.
type PairFact struct {
	Pair
	// Exists: the parent is an interface of this node.
	Exists bool
	// Named by the pool's spec.parents.
	Named bool
	// Used is when a pod of this node last got an address of the pair; zero: never.
	Used time.Time
}

// Condition of a Warm lease in this process.
type Condition int

// The conditions.
const (
	// Unknown: nobody here looks after it: it is of an agent before this one.
	Unknown Condition = iota
	// Unproven: it is being proven, or waits for the parent.
	Unproven
	// Ready to be bound.
	Ready
	// Taken by an ADD, which binds it or puts it back.
	Taken
)

// LeaseFact is a Warm lease of this node.
type LeaseFact struct {
	Name string
	Addr netip.Addr
	Pair
	Condition Condition
}

// Do is what to do with an address.
type Do string

// What can be done.
const (
	// Shed gives a Warm lease up.
	Shed Do = "Shed"
	// Attend proves a Warm lease and watches it.
	Attend Do = "Attend"
	// Create makes another Warm lease.
	Create Do = "Create"
)

// Reason says why a Warm lease is shed; it is a metric label.
type Reason string

// The reasons.
const (
	Cordoned     Reason = "Cordoned"
	PoolGone     Reason = "PoolGone"
	PoolDisabled Reason = "PoolDisabled"
	NotThisNode  Reason = "NotThisNode"
	Scarce       Reason = "Scarce"
	NotInPool    Reason = "NotInPool"
	Unused       Reason = "Unused"
	Surplus      Reason = "Surplus"
)

// Step is one thing to do: to the lease, or with Create to the pair.
type Step struct {
	Do     Do
	Lease  string
	Pair   Pair
	Reason Reason
}

// Plan decides what to shed, to attend and to create, in this order.
func Plan(f Facts) []Step {
	var sheds, attends, creates []Step
	kept := map[Pair]int{}
	for _, l := range byWorth(f.Leases) {
		reason := f.shed(l)
		if reason == "" && kept[l.Pair] >= f.Pools[l.Pool].Warm {
			reason = Surplus
		}
		switch {
		case l.Condition == Taken:
			kept[l.Pair]++
		case reason != "":
			sheds = append(sheds, Step{Do: Shed, Lease: l.Name, Pair: l.Pair, Reason: reason})
		default:
			kept[l.Pair]++
			if l.Condition == Unknown {
				attends = append(attends, Step{Do: Attend, Lease: l.Name, Pair: l.Pair})
			}
		}
	}
	spare := map[string]int64{}
	for name, p := range f.Pools {
		spare[name] = p.spare()
	}
	for _, p := range f.Pairs {
		if !f.fills(p) {
			continue
		}
		for range f.Pools[p.Pool].Warm - kept[p.Pair] {
			if spare[p.Pool] <= 0 {
				break
			}
			spare[p.Pool]--
			creates = append(creates, Step{Do: Create, Pair: p.Pair})
		}
	}
	return slices.Concat(sheds, attends, creates)
}

// shed returns why a lease is given up, or nothing.
func (f Facts) shed(l LeaseFact) Reason {
	pool, exists := f.Pools[l.Pool]
	switch {
	case f.Cordoned:
		return Cordoned
	case !exists, pool.Deleting:
		return PoolGone
	case pool.Disabled:
		return PoolDisabled
	case pool.Elsewhere:
		return NotThisNode
	case pool.Scarce, pool.full():
		return Scarce
	case !pool.Has(l.Addr):
		return NotInPool
	case !f.wanted(l.Pair):
		return Unused
	}
	return ""
}

// fills tells whether leases may be made for a pair.
func (f Facts) fills(p PairFact) bool {
	pool, exists := f.Pools[p.Pool]
	return exists && !f.Cordoned && !f.Down && !pool.Deleting && !pool.Disabled && !pool.Elsewhere && !pool.NotReady &&
		!pool.Scarce && p.wanted(f.Now)
}

// wanted tells whether a pair is kept warm.
func (f Facts) wanted(pair Pair) bool {
	return slices.ContainsFunc(f.Pairs, func(p PairFact) bool { return p.Pair == pair && p.wanted(f.Now) })
}

func (p PairFact) wanted(now time.Time) bool {
	return p.Exists && (p.Named || !p.Used.IsZero() && now.Sub(p.Used) < pairLife)
}

// spare is how many Warm leases may be made so that as many addresses are left
// free as all agents together keep ready. They decide by the same count and
// know nothing of each other, so that is what they may take at once.
func (p Pool) spare() int64 { return p.Free - max(p.Agents, 1)*int64(p.Warm) }

// full tells whether no address is free, so that Warm ones are what somebody waits for.
func (p Pool) full() bool { return p.Counted && p.Free == 0 }

// byWorth sorts leases so that of too many the best are kept: those taken, then
// those ready.
func byWorth(leases []LeaseFact) []LeaseFact {
	return slices.SortedFunc(slices.Values(leases), func(a, b LeaseFact) int {
		return cmp.Or(cmp.Compare(b.Condition, a.Condition), cmp.Compare(a.Name, b.Name))
	})
}
