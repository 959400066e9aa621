// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
)

// bestVerifier returns the best node to verify a lease, or "" if there is none. It tries the holder's own node
// before it lists the other nodes, because many leases may be due at once.
func (r *Reconciler) bestVerifier(ctx context.Context, lease *v1alpha1.IPLease) (string, error) {
	own := holderNode(&lease.Spec)
	if r.Reader.isAlive(ctx, own) {
		return own, nil
	}
	all, err := r.verifiers(ctx, lease)
	if err != nil {
		return "", err
	}
	return firstOf(all), nil
}

// verifiers returns the nodes that may verify a lease, best first.
func (r *Reconciler) verifiers(ctx context.Context, lease *v1alpha1.IPLease) (iter.Seq[string], error) {
	nodes, err := r.withAgents.Get(ctx, "agents")
	if err != nil {
		return nil, fmt.Errorf("choose a verifier for lease %s: %w", lease.Name, err)
	}
	isAlive := func(node string) bool { return r.Reader.isAlive(ctx, node) }
	onSegment := func(node string) bool {
		var found v1alpha1.IPLeaseList
		err := r.Reader.Cache.List(ctx, &found, client.Limit(1), client.UnsafeDisableDeepCopy,
			client.MatchingFields{cache.LeasesByPoolNode: cache.PoolNodeKey(lease.Spec.Pool, node)})
		return err == nil && len(found.Items) > 0
	}
	inSubnet := sync.OnceValue(func() map[string]bool { return r.Reader.nodesInSubnet(ctx, lease.Spec.Pool) })
	return candidates(lease.Name, holderNode(&lease.Spec), nodes, isAlive, onSegment, func(node string) bool {
		return inSubnet()[node]
	}), nil
}

// nodesWithAgents returns the nodes with an agent, each once.
func (r Reader) nodesWithAgents(ctx context.Context) ([]string, error) {
	pods, err := agents.List(ctx, r.Cache, r.Namespace)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for i := range pods {
		if node := pods[i].Spec.NodeName; node != "" {
			nodes = append(nodes, node)
		}
	}
	// While an agent is replaced, its node has two agents.
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// nodesInSubnet returns the nodes with leases of the pools that have the same subnet, network and
// VLAN as a pool. They may be on its segment, so they are asked first. Each proves it itself.
func (r Reader) nodesInSubnet(ctx context.Context, name string) map[string]bool {
	var pools v1alpha1.IPPoolList
	pool := &v1alpha1.IPPool{}
	if r.Cache.Get(ctx, client.ObjectKey{Name: name}, pool, client.UnsafeDisableDeepCopy) != nil || r.Cache.List(ctx, &pools, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	nodes := map[string]bool{}
	for i := range pools.Items {
		other := &pools.Items[i]
		if other.Name == name || !other.InSubnetOf(pool) {
			continue
		}
		var leases v1alpha1.IPLeaseList
		if err := r.Cache.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{cache.LeasesByPool: other.Name}); err != nil {
			continue
		}
		for j := range leases.Items {
			// The node of a Quarantined lease is its verifier.
			if spec := &leases.Items[j].Spec; spec.State != v1alpha1.StateQuarantined {
				nodes[spec.NodeName] = true
			}
		}
	}
	return nodes
}

// holderNode returns the node of a lease's holder, or of its previous holder.
func holderNode(spec *v1alpha1.IPLeaseSpec) string {
	if p := spec.Previous; p != nil && p.Node != "" {
		return p.Node
	}
	return spec.NodeName
}

// isAlive reports whether a node and its agent are Ready. It is false for a node that cannot be read.
func (r Reader) isAlive(ctx context.Context, name string) bool {
	_, alive, err := r.working(ctx, name)
	return err == nil && alive
}

// candidates yields the nodes that may verify a lease, best first:
//   - own, the node of the previous holder: it kills the slot, which is positive proof;
//   - the nodes of each group in turn, for which near reports true;
//   - other nodes, some of which may reach the segment.
//
// The order within a group differs from lease to lease, so that many leases spread over many nodes.
// It is the same at each call. isAlive and near are called late, because each call costs a look-up.
func candidates(lease, own string, nodes []string, isAlive func(node string) bool, near ...func(node string) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		if slices.Contains(nodes, own) && isAlive(own) && !yield(own) {
			return
		}
		others := byRank(lease, nodes)
		for _, isNear := range append(near, func(string) bool { return true }) {
			var rest []string
			for node := range others {
				switch {
				case node == own:
				case !isNear(node):
					rest = append(rest, node)
				case isAlive(node) && !yield(node):
					return
				}
			}
			others = slices.Values(rest)
		}
	}
}

// firstOf returns the first of the nodes, or "" if there is none.
func firstOf(nodes iter.Seq[string]) string {
	for node := range nodes {
		return node
	}
	return ""
}

// after returns the node after current, or the first node after the last one. It returns "" if
// current is the only node.
func after(nodes iter.Seq[string], current string) string {
	var first string
	found := false
	for node := range nodes {
		if found {
			return node
		}
		if first == "" && node != current {
			first = node
		}
		found = node == current
	}
	return first
}

// byRank yields nodes by rendezvous hashing. If a node leaves, only its own leases move. Ranks are spread evenly, so each
// of 64 bands has a few nodes. It is sorted when it is reached, because most callers take a few nodes of thousands.
func byRank(lease string, nodes []string) iter.Seq[string] {
	type ranked struct {
		node string
		rank uint64
	}
	return func(yield func(string) bool) {
		all := make([]ranked, len(nodes))
		hash, key := fnv.New64a(), append([]byte(lease), 0)
		for i, node := range nodes {
			hash.Reset()
			hash.Write(append(key, node...)) // returns no error
			all[i] = ranked{node, mix(hash.Sum64())}
		}
		for band := range uint64(64) {
			var order []ranked
			for _, r := range all {
				if r.rank>>58 == band {
					order = append(order, r)
				}
			}
			slices.SortFunc(order, func(a, b ranked) int {
				return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.node, b.node))
			})
			for _, r := range order {
				if !yield(r.node) {
					return
				}
			}
		}
	}
}

// mix is the finalizer of SplitMix64. FNV alone gives similar hashes to names that differ in the
// last digit, so one node would get all leases.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
