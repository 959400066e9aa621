// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/agents"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/owner"
)

// Names of the indexes of leases.
const (
	// leasesByHolder has the buckets of the keys of a lease's holder. LeasesOf reads it.
	leasesByHolder = "holder"
	// TargetsByMachine has the IdentityKey of the virtual machine of a pod that is, or was, the target of
	// a live migration.
	TargetsByMachine = "machine"
	// LeasesByOwner has the keys "<namespace>/<name>" of the StatefulSet of a Retained lease's holder.
	LeasesByOwner = "holder.owner"
	// LeasesByNode has the keys of a lease's own node and its previous holder's node.
	LeasesByNode = "node"
	// LeasesByPool has the pool as key.
	LeasesByPool = "pool"
	// LeasesByPoolNode has the keys "<pool>/<node>", which show the nodes on a pool's segment.
	LeasesByPoolNode = "pool.node"
	// LeasesByState has the state as key. It contains only Quarantined and Retained leases.
	LeasesByState = "state"
	// ServicesByType is the type of Services, a field that the API server selects by as well.
	ServicesByType = "spec.type"
)

// holderBuckets is the number of keys of leasesByHolder. An index has a map for each key, and most pods
// have one lease: with a key for each pod, the maps take 300 bytes for each lease.
const holderBuckets = 4096

// bucket returns the key of leasesByHolder.
func bucket(key string) string {
	hash := fnv.New32a()
	hash.Write([]byte(key)) // returns no error
	return strconv.FormatUint(uint64(hash.Sum32()%holderBuckets), 36)
}

// LeasesOf returns the leases whose holder has a key: the PodKey of its pod, or its IdentityKey. They
// share memory with the cache, so they must not be changed.
func LeasesOf(ctx context.Context, cache client.Reader, key string) ([]v1alpha1.IPLease, error) {
	var all v1alpha1.IPLeaseList
	err := cache.List(ctx, &all, client.UnsafeDisableDeepCopy, client.MatchingFields{leasesByHolder: bucket(key)})
	if err != nil {
		return nil, fmt.Errorf("list leases of %s: %w", key, err)
	}
	return slices.DeleteFunc(all.Items, func(l v1alpha1.IPLease) bool {
		return !slices.Contains(holderKeys(&l.Spec), key)
	}), nil
}

// PodKey returns the key of a pod for LeasesOf, and the key of LeasesByOwner.
func PodKey(namespace, name string) string { return namespace + "/" + name }

// IdentityKey returns the key of one identity for LeasesOf: a pod name, or a virtual machine. A
// space never occurs in a pod's name.
func IdentityKey(h *v1alpha1.Holder) string {
	if owner.IsMachine(h) {
		return PodKey(h.Namespace, "virtual machine "+h.OwnerName)
	}
	return PodKey(h.Namespace, h.Pod)
}

// MachineKeys returns the keys of TargetsByMachine.
func MachineKeys(pod *podview.Pod) []string {
	if !owner.IsTarget(pod) {
		return nil
	}
	ref, _ := owner.Of(pod)
	machine := owner.MachinePod(pod.Namespace, pod.Name, string(pod.UID), ref.Name)
	return []string{IdentityKey(&machine)}
}

// PoolNodeKey returns the key of LeasesByPoolNode.
func PoolNodeKey(pool, node string) string { return pool + "/" + node }

// AddIndexes registers all indexes.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for name, keys := range map[string]func(*v1alpha1.IPLeaseSpec) []string{
		leasesByHolder:   holderBucketsOf,
		LeasesByOwner:    ownerKeys,
		LeasesByNode:     nodeKeys,
		LeasesByPool:     func(s *v1alpha1.IPLeaseSpec) []string { return []string{s.Pool} },
		LeasesByPoolNode: poolNodeKeys,
		LeasesByState: func(s *v1alpha1.IPLeaseSpec) []string {
			if s.State != v1alpha1.StateQuarantined && s.State != v1alpha1.StateRetained {
				return nil
			}
			return []string{string(s.State)}
		},
	} {
		err := indexer.IndexField(ctx, &v1alpha1.IPLease{}, name, func(o client.Object) []string {
			return keys(&o.(*v1alpha1.IPLease).Spec)
		})
		if err != nil {
			return fmt.Errorf("index leases by %s: %w", name, err)
		}
	}
	err := indexer.IndexField(ctx, &corev1.Service{}, ServicesByType, func(o client.Object) []string {
		return []string{string(o.(*corev1.Service).Spec.Type)}
	})
	if err != nil {
		return fmt.Errorf("index Services by type: %w", err)
	}
	for name, keys := range map[string]func(*podview.Pod) []string{agents.ByNode: agents.NodeKeys, TargetsByMachine: MachineKeys} {
		err := indexer.IndexField(ctx, &podview.Pod{}, name, func(o client.Object) []string { return keys(o.(*podview.Pod)) })
		if err != nil {
			return fmt.Errorf("index pods by %s: %w", name, err)
		}
	}
	return nil
}

func holderBucketsOf(s *v1alpha1.IPLeaseSpec) []string {
	keys := holderKeys(s)
	for i, key := range keys {
		keys[i] = bucket(key)
	}
	return keys
}

func holderKeys(s *v1alpha1.IPLeaseSpec) []string {
	if s.Holder == nil || s.Holder.Pod == "" {
		return nil
	}
	keys := []string{PodKey(s.Holder.Namespace, s.Holder.Pod)}
	if owner.IsMachine(s.Holder) {
		keys = append(keys, IdentityKey(s.Holder))
	}
	return keys
}

func ownerKeys(s *v1alpha1.IPLeaseSpec) []string {
	if ref, ok := owner.OfHolder(s.Holder); s.State != v1alpha1.StateRetained || !ok || !ref.IsApps() {
		return nil
	}
	return []string{PodKey(s.Holder.Namespace, s.Holder.OwnerName)}
}

func nodeKeys(s *v1alpha1.IPLeaseSpec) []string {
	var nodes []string
	if s.NodeName != "" {
		nodes = append(nodes, s.NodeName)
	}
	if p := s.Previous; p != nil && p.Node != "" && p.Node != s.NodeName {
		nodes = append(nodes, p.Node)
	}
	return nodes
}

// poolNodeKeys skips Quarantined leases. Their node is the verifier, which may not be on the segment.
func poolNodeKeys(s *v1alpha1.IPLeaseSpec) []string {
	if s.NodeName == "" || s.State == v1alpha1.StateQuarantined {
		return nil
	}
	return []string{PoolNodeKey(s.Pool, s.NodeName)}
}
