// SPDX-License-Identifier: Apache-2.0

// Package verifier chooses the node that verifies a Quarantined address.
package verifier

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/cache"
)

// Choice chooses among the nodes with a working agent.
type Choice struct {
	// Cache is the cache of the controller, with its indexes.
	Cache client.Reader
	// Namespace is the namespace of the agents.
	Namespace string
}

// First returns the best node to verify a lease, or "" if there is none. It tries the holder's own node
// before it lists the other nodes, because many leases may be due at once.
func (c Choice) First(ctx context.Context, lease *v1alpha1.IPLease) (string, error) {
	own := holderNode(&lease.Spec)
	if c.isAlive(ctx, own) {
		return own, nil
	}
	all, err := c.All(ctx, lease)
	if err != nil {
		return "", err
	}
	return firstOf(all), nil
}

// All returns the nodes that may verify a lease, best first.
func (c Choice) All(ctx context.Context, lease *v1alpha1.IPLease) (iter.Seq[string], error) {
	pods, err := agents.List(ctx, c.Cache, c.Namespace)
	if err != nil {
		return nil, fmt.Errorf("choose a verifier for lease %s: %w", lease.Name, err)
	}
	var nodes []string
	for i := range pods {
		if node := pods[i].Spec.NodeName; node != "" {
			nodes = append(nodes, node)
		}
	}
	// While an agent is replaced, its node has two agents.
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	isAlive := func(node string) bool { return c.isAlive(ctx, node) }
	onSegment := func(node string) bool {
		var found v1alpha1.IPLeaseList
		err := c.Cache.List(ctx, &found, client.Limit(1), client.UnsafeDisableDeepCopy,
			client.MatchingFields{cache.LeasesByPoolNode: cache.PoolNodeKey(lease.Spec.Pool, node)})
		return err == nil && len(found.Items) > 0
	}
	inSubnet := sync.OnceValue(func() map[string]bool { return c.nodesInSubnet(ctx, lease.Spec.Pool) })
	return candidates(lease.Name, holderNode(&lease.Spec), nodes, isAlive, onSegment, func(node string) bool {
		return inSubnet()[node]
	}), nil
}

// nodesInSubnet returns the nodes with leases of the pools that have the same subnet, network and
// VLAN as a pool. They may be on its segment, so they are asked first. Each proves it itself.
func (c Choice) nodesInSubnet(ctx context.Context, name string) map[string]bool {
	var pools v1alpha1.IPPoolList
	pool := &v1alpha1.IPPool{}
	if c.Cache.Get(ctx, client.ObjectKey{Name: name}, pool, client.UnsafeDisableDeepCopy) != nil || c.Cache.List(ctx, &pools, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	nodes := map[string]bool{}
	for i := range pools.Items {
		other := &pools.Items[i]
		if other.Name == name || !other.InSubnetOf(pool) {
			continue
		}
		var leases v1alpha1.IPLeaseList
		if err := c.Cache.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{cache.LeasesByPool: other.Name}); err != nil {
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
func (c Choice) isAlive(ctx context.Context, name string) bool {
	node := &corev1.Node{}
	if c.Cache.Get(ctx, client.ObjectKey{Name: name}, node, client.UnsafeDisableDeepCopy) != nil || !agents.IsReady(node) {
		return false
	}
	works, err := agents.WorksOn(ctx, c.Cache, c.Namespace, name)
	return err == nil && works
}
