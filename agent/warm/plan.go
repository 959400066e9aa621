// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// pairLife is how long a pair is kept warm after the last pod that got an address of it.
const pairLife = time.Hour

// Facts are the input of Plan.
type Facts struct {
	Now time.Time
	// Cordoned: the scheduler starts no pod on this node.
	Cordoned bool
	// Down: the node is not Ready. The controller would reclaim new leases (reclaim.nodeDown).
	Down   bool
	Pools  map[string]Pool
	Pairs  []PairFact
	Leases []LeaseFact
}

// Pool is the part of a pool that Plan needs.
type Pool struct {
	// Warm is the number of addresses that each node keeps ready on each parent.
	Warm int
	// Automatic: spec.warm is unset. Warm is the most then, and only pods make a node keep addresses
	// ready: no more addresses than pods that came within pairLife.
	Automatic bool
	// Deleting, Disabled and Elsewhere (its affinity excludes this node): the pool serves no pod
	// of this node. NotReady: no address is allocated from the pool.
	Deleting, Disabled, Elsewhere, NotReady bool
	// Scarce: the controller asks the agents to release Warm leases.
	Scarce bool
	// Counted: the controller has published Free and Agents. Free is the number of addresses
	// without a lease, Agents the number of agents on nodes that the pool serves.
	Counted      bool
	Free, Agents int64
	// Has reports whether the pool may hand out an address now.
	Has func(netip.Addr) bool
}

// Pair is a pool and a parent that carries it.
type Pair struct{ Pool, Parent string }

// PairFact is a pair and the reasons to keep it warm.
type PairFact struct {
	Pair
	// Exists: the parent is an interface of this node, and the pool names it or no parent.
	Exists bool
	// Named: the pool's spec.parents names the parent.
	Named bool
	// Used are the times at which pods of this node got an address of the pair.
	Used Uses
	// Paused: one foreign host answers for many addresses of the pool. No lease is created for now.
	Paused bool
}

// Condition is the state of a Warm lease in this process.
type Condition int

// The conditions.
const (
	// Unknown: an earlier agent made the lease, and this one does not attend to it yet.
	Unknown Condition = iota
	// Unproven: the proof is under way, or waits for the parent.
	Unproven
	// Ready: an ADD may bind the lease.
	Ready
	// Taken: an ADD uses the lease. It binds the lease or puts it back.
	Taken
)

// LeaseFact is a Warm lease of this node.
type LeaseFact struct {
	Name string
	Addr netip.Addr
	Pair
	Condition Condition
}

// Do is the kind of a Step.
type Do string

// The kinds of steps.
const (
	// Shed releases a Warm lease.
	Shed Do = "Shed"
	// Attend proves a Warm lease and watches it.
	Attend Do = "Attend"
	// Create creates another Warm lease.
	Create Do = "Create"
)

// Reason is the reason to release a Warm lease. It is the value of a metric label.
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
	Wanted       Reason = "Wanted" // by an ADD of another node, for this very address
)

// Step is one action on a lease; a Create acts on a pair.
type Step struct {
	Do     Do
	Lease  string
	Pair   Pair
	Reason Reason
}

// Plan returns the leases to release, then the leases to attend to, then the leases to create.
func Plan(f Facts) []Step {
	var sheds, attends, creates []Step
	kept := map[Pair]int{}
	for _, l := range byWorth(f.Leases) {
		reason := f.shed(l)
		if reason == "" && kept[l.Pair] >= f.goal(l.Pair) {
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
		for range f.goal(p.Pair) - kept[p.Pair] {
			if spare[p.Pool] <= 0 {
				break
			}
			spare[p.Pool]--
			creates = append(creates, Step{Do: Create, Pair: p.Pair})
		}
	}
	return slices.Concat(sheds, attends, creates)
}

// shed returns the reason to release a lease, or "".
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

// fills reports whether leases may be created for a pair.
func (f Facts) fills(p PairFact) bool {
	pool, exists := f.Pools[p.Pool]
	return exists && !f.Cordoned && !f.Down && !pool.Deleting && !pool.Disabled && !pool.Elsewhere && !pool.NotReady &&
		!pool.Scarce && !p.Paused && f.wanted(p.Pair)
}

// wanted reports whether a pair is to be kept warm.
func (f Facts) wanted(pair Pair) bool {
	p := f.pair(pair)
	return p.Exists && (p.Named && !f.Pools[pair.Pool].Automatic || p.Used.recent(f.Now) > 0)
}

// goal returns the number of addresses that the node keeps ready for a pair that is wanted.
func (f Facts) goal(pair Pair) int {
	pool := f.Pools[pair.Pool]
	if pool.Automatic {
		return min(pool.Warm, f.pair(pair).Used.recent(f.Now))
	}
	return pool.Warm
}

// pair returns the facts about a pair; without any, its interface does not exist.
func (f Facts) pair(pair Pair) PairFact {
	i := slices.IndexFunc(f.Pairs, func(p PairFact) bool { return p.Pair == pair })
	if i < 0 {
		return PairFact{Pair: pair}
	}
	return f.Pairs[i]
}

// spare returns the number of Warm leases that may be created. All agents decide at the same time
// by the same count, so it leaves as many addresses free as all of them keep ready.
func (p Pool) spare() int64 { return p.Free - max(p.Agents, 1)*int64(p.Warm) }

// full reports whether no address is free. ADDs then wait for Warm leases to be released.
func (p Pool) full() bool { return p.Counted && p.Free == 0 }

// byWorth sorts leases: taken ones first, then ready ones. Surplus is released from the end.
func byWorth(leases []LeaseFact) []LeaseFact {
	return slices.SortedFunc(slices.Values(leases), func(a, b LeaseFact) int {
		return cmp.Or(cmp.Compare(b.Condition, a.Condition), cmp.Compare(a.Name, b.Name))
	})
}
