// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"cmp"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Share is the addresses that a pool has in common with another pool.
type Share struct {
	Pool string // the other pool
	// Theirs are the addresses that the other pool hands out, and this pool does not. Ours are the
	// addresses that this pool hands out, and the other pool does not.
	Theirs, Ours Set
}

// maxWithheld is the greatest number of ranges in status.withheld. A pool that would need more hands out
// nothing until somebody separates the pools.
const maxWithheld = 4096

// Shares returns the addresses that a pool has in common with other pools, sorted by the other pool's
// name. all is the result of Addresses. One pool hands out each common address:
//
//  1. A pool that handed it out before. status.withheld names the addresses that a pool did not hand out.
//  2. A pool whose present spec the controller has seen, before a pool that was created or edited since.
//  3. The older pool, then the first one by name.
//
// So the pool that gets an address last does not take it from another pool, and an edit of another field
// changes nothing. Each program that reads the same pools gets the same result. A pool that is being
// deleted has no addresses. An unreadable pool keeps the addresses that status.withheld says.
func Shares(pool *v1alpha1.IPPool, all Set, pools []v1alpha1.IPPool) []Share {
	others := neighbours(pool, all, pools)
	if len(others) == 0 {
		return nil
	}
	order := append([]claimant{{pool, all}}, others...)
	slices.SortFunc(order, func(a, b claimant) int { return rank(a.pool, b.pool) })
	got := make(map[string]Set, len(order))
	left := all
	for _, c := range order {
		got[c.pool.Name] = left.And(c.set).Minus(Withheld(c.pool.Status.Withheld))
		left = left.Minus(got[c.pool.Name])
	}
	for _, c := range order {
		more := left.And(c.set)
		got[c.pool.Name] = got[c.pool.Name].Plus(more)
		left = left.Minus(more)
	}
	shares := make([]Share, len(others))
	for i, c := range others {
		shares[i] = Share{c.pool.Name, got[c.pool.Name], got[pool.Name].And(c.set)}
	}
	slices.SortFunc(shares, func(a, b Share) int { return cmp.Compare(a.Pool, b.Pool) })
	return shares
}

// claimant is a pool with its addresses.
type claimant struct {
	pool *v1alpha1.IPPool
	set  Set
}

// neighbours returns the other pools of the network that have addresses of a pool.
func neighbours(pool *v1alpha1.IPPool, all Set, pools []v1alpha1.IPPool) []claimant {
	subnet, err := Subnet(pool)
	if err != nil {
		return nil
	}
	var found []claimant
	for i := range pools {
		other := &pools[i]
		if other.Name == pool.Name || other.Spec.Network != pool.Spec.Network || other.DeletionTimestamp != nil {
			continue
		}
		// Most pairs have different subnets, and this comparison is cheap.
		if s, err := Subnet(other); err == nil && !s.Overlaps(subnet) {
			continue
		}
		theirs, err := Addresses(other)
		if err != nil {
			theirs = withheldFor(pool, other.Name)
		}
		if theirs.Overlaps(all) {
			found = append(found, claimant{other, theirs})
		}
	}
	return found
}

// rank is negative if a comes before b in the order of the rules 2 and 3 of Shares.
func rank(a, b *v1alpha1.IPPool) int {
	if x, y := isSettled(a), isSettled(b); x != y {
		if x {
			return -1
		}
		return 1
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// isSettled reports whether the status of a pool is about its present spec.
func isSettled(pool *v1alpha1.IPPool) bool { return pool.Status.ObservedGeneration == pool.Generation }

// Own returns the addresses that a pool hands out: all, the result of Addresses, without those that
// another pool hands out. It follows a status about the present spec, because only the controller
// compares all pools at each change. Otherwise the pool was created or edited a moment ago or while
// there was no controller, and Own compares the pools itself.
func Own(pool *v1alpha1.IPPool, all Set, pools []v1alpha1.IPPool) Set {
	if isSettled(pool) {
		return all.Minus(Withheld(pool.Status.Withheld))
	}
	for _, share := range Shares(pool, all, pools) {
		all = all.Minus(share.Theirs)
	}
	return all
}

// Withheld returns the addresses of status.withheld.
func Withheld(record []v1alpha1.Withheld) Set {
	var all Set
	for _, w := range record {
		if s, err := Parse(w.IPs); err == nil {
			all = all.Plus(s)
		}
	}
	return all
}

// withheldFor returns the addresses of status.withheld that another pool hands out.
func withheldFor(pool *v1alpha1.IPPool, other string) Set {
	for _, w := range pool.Status.Withheld {
		if w.Pool == other {
			s, _ := Parse(w.IPs)
			return s
		}
	}
	return Set{}
}

// Record returns status.withheld for the result of Shares.
func Record(pool *v1alpha1.IPPool, shares []Share) []v1alpha1.Withheld {
	var record []v1alpha1.Withheld
	ranges := 0
	for _, share := range shares {
		if ips := share.Theirs.Entries(); len(ips) > 0 {
			record = append(record, v1alpha1.Withheld{Pool: share.Pool, IPs: ips})
			ranges += len(ips)
		}
	}
	if ranges > maxWithheld {
		return []v1alpha1.Withheld{{Pool: record[0].Pool, IPs: []string{pool.Spec.Subnet}}}
	}
	return record
}
