// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/netip"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/bpf"
)

// Observers are the observers on the parents. *bpf.Observers implements it.
type Observers interface {
	Attached() (map[int]bool, error)
}

// Sightings has the speakers on the parents. *bpf.Sightings implements it.
type Sightings interface {
	Last(bpf.Key) (bpf.Sighting, bool, error)
}

// heard returns the parents of this node on which the last holder used the address, by index. Its
// frames reached this node there, so the parent leads to the holder's segment, whatever its name
// is. The MAC identifies the holder. It is the MAC of the pod, or with ipvlan of its node.
func (p *Parents) heard(last segment.LastHolder) ([]int, error) {
	if len(last.MAC) == 0 {
		return nil, nil
	}
	observed, err := p.Observers.Attached()
	if err != nil {
		return nil, fmt.Errorf("look for the parents that have heard %s: %w", last.Addr, err)
	}
	var parents []int
	for _, parent := range slices.Sorted(maps.Keys(observed)) {
		s, ok, err := p.Sightings.Last(bpf.Key{Segment: uint32(parent), Addr: last.Addr})
		if err != nil {
			return nil, err
		}
		if ok && s.LastSeen != 0 && bytes.Equal(s.MAC, last.MAC) && Exists(parent) {
			parents = append(parents, parent)
		}
	}
	return parents, nil
}

// isElsewhereToo reports whether a pool of another network may have the address. Then the heard
// frames may come from the other network: with ipvlan, all pods of a node have the MAC of their
// master, and a master's VLAN subinterfaces share it. If the pools cannot be read, it reports true.
func (p *Parents) isElsewhereToo(pool *v1alpha1.IPPool, addr netip.Addr) bool {
	pools := &v1alpha1.IPPoolList{}
	if err := p.Pools.List(context.Background(), pools, client.UnsafeDisableDeepCopy); err != nil {
		return true
	}
	return slices.ContainsFunc(pools.Items, func(other v1alpha1.IPPool) bool {
		subnet, err := netip.ParsePrefix(other.Spec.Subnet)
		return other.Spec.Network != pool.Spec.Network && (err != nil || subnet.Contains(addr))
	})
}

// Gateways returns the gateways of an entry's pools, with the MAC that last used each on the entry's
// parent. It is nil for one that was not heard.
func (p *Parents) Gateways(e *attachment.Entry) map[netip.Addr]net.HardwareAddr {
	gateways := map[netip.Addr]net.HardwareAddr{}
	for _, address := range e.Addresses {
		pool := &v1alpha1.IPPool{}
		if err := p.Pools.Get(context.Background(), client.ObjectKey{Name: address.Pool}, pool, client.UnsafeDisableDeepCopy); err != nil {
			continue
		}
		gateway := pool.Gateway()
		if !gateway.IsValid() {
			continue
		}
		gateways[gateway] = nil
		if s, ok, err := p.Sightings.Last(bpf.Key{Segment: uint32(e.ParentIndex), Addr: gateway}); ok && err == nil && s.LastSeen != 0 {
			gateways[gateway] = s.MAC
		}
	}
	return gateways
}

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
func expected(parent int, bound iter.Seq[*attachment.Entry], pools []v1alpha1.IPPool) bool {
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
