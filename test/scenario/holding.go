// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/poolset"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// holding is a pool of an application.
type holding struct {
	name string
	// all are the addresses of the pool, offered those that it has not withdrawn.
	all, offered poolset.Set
	// leases are those that existed both before and after the pool was read.
	leases []v1alpha1.IPLease
}

// holdings returns the pools of the IPSubnet by the kind of their application.
func (s *subnets) holdings(ctx context.Context) (map[string]holding, error) {
	before, pools, after := &v1alpha1.IPLeaseList{}, &v1alpha1.IPPoolList{}, &v1alpha1.IPLeaseList{}
	for _, list := range []client.ObjectList{before, pools, after} {
		if err := s.api.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list pools and leases: %w", err)
		}
	}
	earlier := map[types.UID]bool{}
	for i := range before.Items {
		earlier[before.Items[i].UID] = true
	}
	held := map[string]holding{}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if pool.Spec.IPSubnet != s.namespace {
			continue
		}
		kind := pool.Spec.Application.Kind
		if other, ok := held[kind]; ok {
			return nil, fmt.Errorf("the %s has two pools, %s and %s", kind, other.name, pool.Name)
		}
		all, err := poolset.Parse(pool.Spec.IPs)
		if err != nil {
			return nil, fmt.Errorf("read pool %s: %w", pool.Name, err)
		}
		excluded, err := poolset.Parse(pool.Spec.ExcludeIPs)
		if err != nil {
			return nil, fmt.Errorf("read pool %s: %w", pool.Name, err)
		}
		h := holding{name: pool.Name, all: all, offered: all.Minus(excluded)}
		for _, l := range after.Items {
			if l.Spec.Pool == pool.Name && earlier[l.UID] {
				h.leases = append(h.leases, l)
			}
		}
		held[kind] = h
	}
	return held, nil
}

// keepApart returns an error if two pools have a common address, or if a pool has withdrawn or never had
// the address of one of its leases.
func keepApart(held map[string]holding) error {
	var before poolset.Set
	for kind, h := range held {
		if common := h.all.And(before); common.Len() > 0 {
			return fmt.Errorf("pool %s of the %s has %v in common with another pool", h.name, kind, common.Entries())
		}
		before = before.Plus(h.all)
		for i := range h.leases {
			if l := &h.leases[i]; !h.offered.Contains(l.Spec.Addr()) {
				return fmt.Errorf("pool %s of the %s gives out %v only, with the lease %s", h.name, kind, h.offered.Entries(), describe(l))
			}
		}
	}
	return nil
}
