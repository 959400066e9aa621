// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/poolset"
)

// grants returns what the reservations keep for the pod.
func (r Request) grants() []poolset.Grant {
	if r.Reservations == nil {
		return nil
	}
	return poolset.Grants(r.Reservations.For(r.Pod.holder()), r.Pod.holder())
}

// reservedAt returns at least the reservations that have an address.
func (r Request) reservedAt(addr netip.Addr) []v1alpha1.ReservedIP {
	if r.Reservations == nil {
		return nil
	}
	return r.Reservations.At(addr)
}

func (p Pod) holder() *v1alpha1.Holder {
	return &v1alpha1.Holder{Namespace: p.Namespace, Pod: p.Name, OwnerKind: p.OwnerKind, OwnerName: p.OwnerName}
}

// keptForAnother returns the reservation that keeps an address of a pool for somebody else than the pod, or nil.
func (c chooser) keptForAnother(pool *v1alpha1.IPPool, addr netip.Addr) *v1alpha1.ReservedIP {
	return poolset.KeptForAnother(c.req.reservedAt(addr), pool.Spec.Network, addr, c.req.Pod.holder())
}

// granted returns the addresses of a pool's network that some of the grants have.
func (c chooser) granted(pool *v1alpha1.IPPool, which func(poolset.Grant) bool) (all poolset.Set) {
	for _, g := range c.grants {
		if g.Network == pool.Spec.Network && which(g) {
			all = all.Plus(g.Set)
		}
	}
	return all
}

func (c chooser) isGranted(pool *v1alpha1.IPPool, addr netip.Addr) bool {
	return c.granted(pool, func(poolset.Grant) bool { return true }).Contains(addr)
}

// byPreference divides a candidate: the addresses that are kept for the namespace come before the others.
func (c chooser) byPreference(candidate Candidate) []Candidate {
	ofAll := c.granted(candidate.Pool, func(g poolset.Grant) bool { return g.Namespace })
	first, rest := candidate, candidate
	first.Set = candidate.Set.And(ofAll)
	rest.Set = candidate.Set.Minus(ofAll)
	for i := range min(first.Set.Len(), demand.MaxEntries) {
		first.Only = append(first.Only, first.Set.At(i)) // the ADD waits for these, of which nobody else is told
	}
	switch {
	case len(first.Only) == 0:
		return []Candidate{candidate}
	case rest.Set.Len() == 0:
		return []Candidate{first}
	}
	return []Candidate{first, rest}
}

// grantIn returns the wish of the reservations that keep addresses of a pool for this very pod. An earlier interface
// of the pod may have one of them. lacking names a reservation whose list is too short for the pod.
func (c chooser) grantIn(pool *v1alpha1.IPPool, ipv6 bool) (w Wish, ok bool, lacking string) {
	all, err := poolset.Addresses(pool)
	if err != nil || isIPv6(pool) != ipv6 {
		return Wish{}, false, ""
	}
	for _, g := range c.grants {
		if g.Namespace || g.Network != pool.Spec.Network {
			continue
		}
		if g.Lacking.Overlaps(all) {
			lacking = g.By
		}
		set := g.Set.And(all).Minus(c.had(pool))
		for i := range min(set.Len(), demand.MaxEntries) {
			w.By, w.Reserved = "ReservedIP "+g.By, true
			w.Addrs = append(w.Addrs, set.At(i))
		}
	}
	w.Shared = len(w.Addrs) > 1
	return w, len(w.Addrs) > 0, lacking
}

// had returns the addresses that earlier interfaces of the pod have from a pool.
func (c chooser) had(pool *v1alpha1.IPPool) poolset.Set {
	var addrs []netip.Addr
	for _, i := range c.req.Earlier {
		for _, k := range i.Addresses {
			if k.Pool == pool.Name {
				addrs = append(addrs, k.Addr)
			}
		}
	}
	return poolset.Of(addrs...)
}

// honourReservations restricts the families without another wish to the addresses that are kept for the pod.
func (c chooser) honourReservations(choice *Choice) error {
	for i := range choice.Families {
		f, lacking := &choice.Families[i], ""
		for at := 0; f.Wish == nil && at < len(f.Pools); at++ {
			w, ok, by := c.grantIn(f.Pools[at].Pool, f.IPv6)
			if c.keepsAnother(f, w) {
				continue
			}
			if lacking = cmp.Or(lacking, by); !ok {
				continue
			}
			if err := c.grant(choice, w); err != nil {
				return err
			}
		}
		if lacking != "" && f.Wish == nil {
			return &ReservationError{Interface: c.req.Describe(), ReservedIP: lacking, Pod: c.req.Pod.describe()}
		}
	}
	return nil
}

// keepsAnother reports whether an address that is not in a wish is kept for the interface: it is not left.
func (c chooser) keepsAnother(f *Family, w Wish) bool {
	return slices.ContainsFunc(c.req.Kept, func(k Kept) bool { return k.Addr.Is6() == f.IPv6 && !slices.Contains(w.Addrs, k.Addr) })
}
