// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// view is the state of the caches and of the node's interfaces at one time.
type view struct {
	facts Facts
	// candidates are the pools, by name, for the allocator.
	candidates map[string]ipam.Candidate
	// leases are the Warm leases of this node, by name.
	leases map[string]*v1alpha1.IPLease
	// parents are the interface indexes of the existing parents, by name.
	parents map[string]int
}

// look reads the caches. The objects that it returns belong to the cache and must not be changed.
func (k *Keeper) look(ctx context.Context) (view, error) {
	v := view{
		facts:      Facts{Now: k.Clock.Now(), Pools: map[string]Pool{}},
		candidates: map[string]ipam.Candidate{}, leases: map[string]*v1alpha1.IPLease{}, parents: map[string]int{},
	}
	node := &corev1.Node{}
	if err := k.Cache.Get(ctx, client.ObjectKey{Name: k.Node}, node); err != nil {
		return v, fmt.Errorf("read node %s: %w", k.Node, err)
	}
	v.facts.Cordoned, v.facts.Down = node.Spec.Unschedulable, isDown(node)
	pools, leases := &v1alpha1.IPPoolList{}, &v1alpha1.IPLeaseList{}
	for _, list := range []client.ObjectList{pools, leases} {
		if err := k.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return v, fmt.Errorf("list %T: %w", list, err)
		}
	}
	reservations, err := poolset.ReadReserved(ctx, k.Cache)
	if err != nil {
		return v, err
	}
	reserved := reservations.Set()
	for i := range pools.Items {
		pool := &pools.Items[i]
		candidate, closed := ipam.OnNode(pool, pools.Items, k.Node, node.Labels, reserved)
		v.facts.Pools[pool.Name] = poolOf(candidate, closed)
		v.candidates[pool.Name] = candidate
	}
	for i := range leases.Items {
		if l := &leases.Items[i]; l.Spec.State == v1alpha1.StateWarm && l.Spec.NodeName == k.Node {
			v.leases[l.Name] = l
		}
	}
	v.facts.Pairs, err = k.pairFacts(pools.Items, v.parents)
	return v, err
}

// isDown reports whether the node's condition Ready is False or Unknown.
func isDown(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// poolOf returns the facts about a pool.
func poolOf(c ipam.Candidate, closed *ipam.Rejection) Pool {
	p := Pool{
		Warm:      int(c.Pool.Stock()),
		Automatic: c.Pool.Spec.Warm == nil,
		Scarce:    c.Pool.Status.Scarce,
		// A pool without addresses is treated like a pool that the controller has not counted yet.
		Counted: c.Pool.Status.Total > 0, Free: c.Pool.Status.Free, Agents: c.Pool.Status.Served,
		Has: c.Set.Contains,
	}
	if closed == nil {
		return p
	}
	switch closed.Reason {
	case ipam.Deleting:
		p.Deleting = true
	case ipam.Disabled:
		p.Disabled = true
	case ipam.NodeName, ipam.NodeAffinity:
		p.Elsewhere = true
	case ipam.Invalid:
		// The addresses of the pool are unknown.
		p.NotReady, p.Has = true, func(netip.Addr) bool { return true }
	default:
		p.NotReady = true
	}
	return p
}

// pairFacts returns the pairs that pods used or pools name. It adds existing parents to parents.
func (k *Keeper) pairFacts(pools []v1alpha1.IPPool, parents map[string]int) ([]PairFact, error) {
	used := k.pairs.all()
	known := map[Pair]*PairFact{}
	params, byName := map[string]segment.ProbeParams{}, map[string]*v1alpha1.IPPool{}
	for pair, at := range used {
		known[pair] = &PairFact{Pair: pair, Used: at}
	}
	for i := range pools {
		params[pools[i].Name], byName[pools[i].Name] = segment.ParamsOf(&pools[i]), &pools[i]
		named, err := k.Named(&pools[i])
		if err != nil {
			return nil, err
		}
		for _, parent := range named {
			pair := Pair{pools[i].Name, parent}
			if known[pair] == nil {
				known[pair] = &PairFact{Pair: pair}
			}
			known[pair].Named = true
		}
	}
	facts := make([]PairFact, 0, len(known))
	for _, f := range known {
		index, exists, err := k.Parent(f.Parent)
		if err != nil {
			return nil, err
		}
		if exists {
			parents[f.Parent] = index
		}
		pool := byName[f.Pool]
		f.Exists = exists && (pool == nil || k.Carries(pool, index))
		f.Paused = k.isPaused(f.Pair, params[f.Pool])
		facts = append(facts, *f)
	}
	slices.SortFunc(facts, func(a, b PairFact) int {
		return strings.Compare(a.Pool+" "+a.Parent, b.Pool+" "+b.Parent)
	})
	return facts, nil
}
