// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/poolset"
)

// grants returns what the reservations keep for the pod.
func (r Request) grants() []poolset.Grant {
	return poolset.Grants(r.Reservations, &v1alpha1.Holder{
		Namespace: r.Pod.Namespace, Pod: r.Pod.Name, OwnerKind: r.Pod.OwnerKind, OwnerName: r.Pod.OwnerName,
	})
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
	if rest.Set = candidate.Set.Minus(ofAll); first.Set.Len() == 0 || rest.Set.Len() == 0 {
		return []Candidate{candidate}
	}
	for i := range min(first.Set.Len(), demand.MaxEntries) {
		first.Only = append(first.Only, first.Set.At(i)) // the ADD waits for these, too
	}
	return []Candidate{first, rest}
}

// grantIn returns the wish of the reservations that keep addresses of a pool for this very pod.
func (c chooser) grantIn(pool *v1alpha1.IPPool, ipv6 bool) (w Wish, ok bool) {
	all, err := poolset.Addresses(pool)
	if err != nil {
		return Wish{}, false
	}
	for _, g := range c.grants {
		set := g.Set.And(all)
		if g.Namespace || g.Network != pool.Spec.Network || set.Len() == 0 || isIPv6(pool) != ipv6 {
			continue
		}
		w.By = "ReservedIP " + g.By
		for i := range min(set.Len(), demand.MaxEntries) {
			w.Addrs = append(w.Addrs, set.At(i))
		}
	}
	w.Shared = len(w.Addrs) > 1
	return w, len(w.Addrs) > 0
}

// honourReservations restricts the families without another wish to the addresses that are kept for the pod.
func (c chooser) honourReservations(choice *Choice) error {
	for i := range choice.Families {
		f := &choice.Families[i]
		for at := 0; f.Wish == nil && at < len(f.Pools); at++ {
			w, ok := c.grantIn(f.Pools[at].Pool, f.IPv6)
			if !ok || c.keepsAnother(f, w) {
				continue
			}
			if err := c.grant(choice, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepsAnother reports whether an address that is not in a wish is kept for the interface: it is not left.
func (c chooser) keepsAnother(f *Family, w Wish) bool {
	return slices.ContainsFunc(c.req.Kept, func(k Kept) bool { return k.Addr.Is6() == f.IPv6 && !slices.Contains(w.Addrs, k.Addr) })
}
