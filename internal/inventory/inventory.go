// SPDX-License-Identifier: Apache-2.0

// Package inventory says of each address of a pool in which state it is, for people.
package inventory

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// State is the state of an address. An address with a lease has the lease's state, or Conflict.
type State string

// The states of an address.
const (
	Free  State = "Free"
	Bound       = State(v1alpha1.StateBound)
	Warm        = State(v1alpha1.StateWarm)
	// Quarantined: the address is not handed out until its last holder is fenced, gone or proven silent.
	Quarantined = State(v1alpha1.StateQuarantined)
	Retained    = State(v1alpha1.StateRetained)
	// Conflict: another host uses the address.
	Conflict State = "Conflict"
	// CoolingDown: the address was freed, and is not handed out for a short time.
	CoolingDown State = "CoolingDown"
	// Reserved: a ReservedIP keeps the address back, or a Service of type LoadBalancer has it.
	Reserved State = "Reserved"
	Gateway  State = "Gateway"
	// Withheld: another pool hands the address out.
	Withheld State = "Withheld"
	// Outside: the pool does not hand the address out.
	Outside State = "Outside"
)

// Pool is a pool with the objects that decide about the states of its addresses.
type Pool struct {
	Subnet netip.Prefix
	// Set is the addresses that the spec of the pool hands out.
	Set poolset.Set

	gateway            netip.Addr
	reserved, withheld poolset.Set
	inUse              poolset.Bitmap
	leases             map[netip.Addr]*v1alpha1.IPLease
}

// Of returns a pool. It keeps the leases of the pool among leases, and does not change them. The error
// joins a poolset.SpecError for each problem of the pool.
func Of(pool *v1alpha1.IPPool, leases []v1alpha1.IPLease, reservations []v1alpha1.ReservedIP) (*Pool, error) {
	p := &Pool{
		reserved: poolset.ReservedSet(reservations), withheld: poolset.Withheld(pool.Status.Withheld),
		gateway: pool.Gateway(), leases: map[netip.Addr]*v1alpha1.IPLease{},
	}
	var err error
	if p.Set, err = poolset.Addresses(pool); err != nil {
		return nil, err
	}
	p.Subnet, _ = poolset.Subnet(pool) // Addresses has checked it
	if p.inUse, err = poolset.DecodeBitmap(pool.Status.InUse); err != nil {
		return nil, err
	}
	for i := range leases {
		if l := &leases[i]; l.Spec.Pool == pool.Name {
			p.leases[l.Spec.Addr()] = l
		}
	}
	return p, nil
}

// Lease returns the lease of an address, or nil.
func (p *Pool) Lease(a netip.Addr) *v1alpha1.IPLease { return p.leases[a] }

// Leased returns the addresses with a lease, in order.
func (p *Pool) Leased() []netip.Addr {
	return slices.SortedFunc(maps.Keys(p.leases), netip.Addr.Compare)
}

// State returns the state of an address.
func (p *Pool) State(a netip.Addr) State {
	offset, inSubnet := poolset.Offset(p.Subnet, a)
	bare := p.bare(a)
	switch l := p.leases[a]; {
	case l != nil:
		return OfLease(l)
	case a == p.gateway:
		return Gateway
	case bare == Free && inSubnet && p.inUse.Has(offset):
		return CoolingDown
	}
	return bare
}

// bare returns the state of an address but for its lease, its cooldown and the gateway.
func (p *Pool) bare(a netip.Addr) State {
	switch {
	case !p.Set.Contains(a):
		return Outside
	case p.reserved.Contains(a):
		return Reserved
	case p.withheld.Contains(a):
		return Withheld
	}
	return Free
}

// single returns the addresses of the subnet that have a state of their own.
func (p *Pool) single() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for a := range p.leases {
		all[a] = true
	}
	if p.Subnet.Contains(p.gateway) {
		all[p.gateway] = true
	}
	subnet, _ := poolset.Parse([]string{p.Subnet.String()}) // Of has read it
	for i := range min(uint64(len(p.inUse))*8, subnet.Len()) {
		if p.inUse.Has(i) {
			all[subnet.At(i)] = true
		}
	}
	return all
}

// Count returns the number of addresses in each state but Outside, at most MaxUint64. It takes no time
// for the addresses of a range, so the pool may be a /64.
func (p *Pool) Count() map[State]uint64 {
	reserved := p.Set.And(p.reserved)
	withheld := p.Set.And(p.withheld).Minus(reserved)
	count := map[State]uint64{Reserved: reserved.Len(), Withheld: withheld.Len(), Free: p.Set.Minus(reserved).Minus(withheld).Len()}
	for a := range p.single() {
		if bare := p.bare(a); bare != Outside {
			count[bare]--
		}
		count[p.State(a)]++
	}
	delete(count, Outside)
	return count
}

// Marks returns the addresses at which states change: those with a state of their own, and the ends of
// ranges.
func (p *Pool) Marks() []netip.Addr {
	all := slices.Collect(maps.Keys(p.single()))
	for _, set := range []poolset.Set{p.Set, p.Set.And(p.reserved), p.Set.And(p.withheld)} {
		all = append(all, set.Ends()...)
	}
	return all
}

// OfLease returns the state of the address of a lease.
func OfLease(l *v1alpha1.IPLease) State {
	if l.Spec.State == v1alpha1.StateQuarantined && l.Spec.Reason == v1alpha1.ReasonConflict {
		return Conflict
	}
	return State(l.Spec.State)
}

// PodOf names the pod of a lease, such as "pod shop/web-0". It is empty if the lease records none.
func PodOf(s *v1alpha1.IPLeaseSpec) string {
	if s.Holder == nil || s.Holder.Pod == "" {
		return ""
	}
	return "pod " + s.Holder.Namespace + "/" + s.Holder.Pod
}
