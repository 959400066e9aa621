// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"context"
	"iter"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Expected reports whether another node has an address whose claims this node should hear on a
// parent. If the pools cannot be read, it reports true.
func (p *Parents) Expected(parent int) bool {
	pools := &v1alpha1.IPPoolList{}
	if err := p.Pools.List(context.Background(), pools, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	return expected(parent, p.Bound(), pools.Items)
}

// expected checks each pool in a subnet of this node's pods on the parent. If a pool has more Bound
// addresses than this node has of it, another node has one. Only pools of the mode Enforce count,
// because only their holders claim (R3).
func expected(parent int, bound iter.Seq[*journal.Entry], pools []v1alpha1.IPPool) bool {
	mine, here := map[string]int64{}, map[string]bool{}
	for e := range bound {
		for _, address := range e.Addresses {
			mine[address.Pool]++
			here[address.Pool] = here[address.Pool] || e.ParentIndex == parent
		}
	}
	for i := range pools {
		pool := &pools[i]
		if pool.ConflictMode() != v1alpha1.ModeEnforce || pool.Status.Bound <= mine[pool.Name] {
			continue
		}
		for j := range pools {
			if here[pools[j].Name] && pool.InSubnetOf(&pools[j]) {
				return true
			}
		}
	}
	return false
}
