// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"path"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Standing is the relation between an interface and the pool of an address that is kept for it.
type Standing struct {
	// Named reports that the present source of pool names names the pool.
	Named bool
	// Left names the source that names pools, but not this pool, if the address is to be left: the source
	// is an annotation of the pod itself, whose author wants an address of another pool, or the interface
	// is on another parent now, as in another network. It is empty otherwise.
	Left string
	// Unwished is the reason, as a clause, for which the address is to be left: other addresses are wished for
	// the interface, or this one is kept for somebody else. It is empty otherwise.
	Unwished string
	// Rejected is the reason for which the pool does not serve the interface, or nil. A pool that
	// hands out no new address still serves the addresses that are kept.
	Rejected *Rejection
}

// Standings returns the standing of each element of req.Kept. Errors are those of ChoosePools.
func Standings(req Request, pools []v1alpha1.IPPool) ([]Standing, error) {
	if len(req.Kept) == 0 {
		return nil, nil
	}
	s, err := readPod(req)
	if err != nil {
		return nil, err
	}
	names, err := findNames(req, pools, s)
	if err != nil {
		return nil, err
	}
	c := chooser{req, s, sortedByName(pools), pools, poolset.Set{}, names, req.grants()}
	all := make([]Standing, len(req.Kept))
	for i, k := range req.Kept {
		all[i] = c.standing(k)
	}
	return all, nil
}

func (c chooser) standing(k Kept) Standing {
	ipv6 := k.Addr.Is6()
	st := Standing{Named: slices.ContainsFunc(c.names.of(ipv6), func(name string) bool {
		matches, err := path.Match(name, k.Pool)
		return name == k.Pool || err == nil && matches
	})}
	switch is := c.req.Parent; {
	case st.Named || c.names.source == "":
	case c.names.ofPod:
		st.Left = c.names.source
	case k.Parent != "" && is.Name != "" && !slices.Contains(is.Names, k.Parent):
		st.Left = fmt.Sprintf("%s, and the parent is %s, no longer %s", c.names.source, is.Name, k.Parent)
	}
	if w := c.said.wishOf(ipv6); w != nil && !slices.Contains(w.Addrs, k.Addr) {
		st.Unwished = w.By + namesAnother
	}
	found := c.lookUp(k.Pool, ipv6)
	if len(found) == 0 {
		st.Rejected = &Rejection{k.Pool, NotFound, "it does not exist"}
		return st
	}
	if g, ok, _ := c.grantIn(found[0], ipv6); ok && st.Unwished == "" && c.said.wishOf(ipv6) == nil && !slices.Contains(g.Addrs, k.Addr) {
		st.Unwished = g.By + namesAnother
	}
	if r := c.keptForAnother(found[0], k.Addr); r != nil && st.Unwished == "" {
		st.Unwished = fmt.Sprintf("ReservedIP %s keeps it for %s", r.Name, r.Spec.For)
	}
	_, st.Rejected = c.filter(found[0], ipv6)
	return st
}

const namesAnother = " names another address"

// keptUnnamed returns the pools of the addresses that are kept for the interface, without the pools
// in named. An address is kept although no source names its pool any longer. Only an annotation of
// the pod itself can leave a pool. Such a pool hands out no new address.
func (c chooser) keptUnnamed(ipv6 bool, named map[string]bool) (pools []Candidate, rejected []Rejection) {
	if c.names.ofPod {
		return nil, nil
	}
	for _, k := range c.req.Kept {
		if k.Addr.Is6() != ipv6 || named[k.Pool] {
			continue
		}
		for _, pool := range c.lookUp(k.Pool, ipv6) {
			candidate, rejection := c.filter(pool, ipv6)
			if rejection != nil {
				rejected = append(rejected, *rejection)
				continue
			}
			candidate.Set, candidate.Closed = poolset.Set{}, c.unnamed(pool.Name)
			pools = append(pools, candidate)
		}
	}
	return pools, rejected
}

// unnamed is the reason for which a pool hands out no new address to the interface.
func (c chooser) unnamed(pool string) *Rejection {
	if c.names.source == "" {
		return &Rejection{pool, NotNamed, "no annotation or configuration names it, and it has no spec.default"}
	}
	return &Rejection{pool, NotNamed, "it is not one of the pools of " + c.names.source}
}
