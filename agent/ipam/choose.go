// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// ChoosePools returns the pools for one interface. It takes the candidates from the first source that
// names a pool, rejects those that cannot serve, and sorts the others: a pool with a closer match to
// this pod comes first. The pools of req.Kept are candidates for these addresses also if no source
// names them. No address of reserved is in the result.
//
// The error joins a *NoPoolError, an *AnnotationError or a *RequestedError for each family that
// cannot be served. The result points into pools.
func ChoosePools(req Request, pools []v1alpha1.IPPool, reserved poolset.Set) (Choice, error) {
	s, err := readPod(req)
	if err != nil {
		return Choice{}, err
	}
	names, err := findNames(req, pools, s)
	if err != nil {
		return Choice{}, err
	}
	c := chooser{req, s, sortedByName(pools), pools, reserved, names, req.grants()}
	if names.empty() && len(req.Kept) == 0 {
		return Choice{}, c.none(false, nil)
	}
	var choice Choice
	var errs, unmeant []error
	for _, ipv6 := range []bool{false, true} {
		f, err := c.family(ipv6)
		switch none := (*NoPoolError)(nil); {
		case err == nil && len(f.Pools) > 0:
			choice.Families = append(choice.Families, f)
		case names.implied && errors.As(err, &none) && meantForOthers(none.Rejected):
			unmeant = append(unmeant, err)
		case err != nil:
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 && len(choice.Families) == 0 {
		if errs = unmeant; len(errs) == 0 {
			errs = append(errs, c.none(false, nil))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Choice{}, err
	}
	if err := c.honour(&choice); err != nil {
		return Choice{}, err
	}
	if err := c.chooseMACs(&choice); err != nil {
		return Choice{}, err
	}
	if err := c.route(&choice); err != nil {
		return Choice{}, err
	}
	return choice, nil
}

// chooser holds the arguments of one call.
type chooser struct {
	req      Request
	said     said
	pools    []*v1alpha1.IPPool // by name
	all      []v1alpha1.IPPool
	reserved poolset.Set
	names    named
	// grants are the addresses that reservations keep for the pod.
	grants []poolset.Grant
}

// family filters and sorts the candidates of one family. Without candidates it returns an empty
// Family and no error.
func (c chooser) family(ipv6 bool) (Family, error) {
	names, at := c.names.of(ipv6), c.names.at4
	if ipv6 {
		at = c.names.at6
	}
	f := Family{IPv6: ipv6, Source: c.names.source, Interface: c.req.Describe()}
	seen := map[string]bool{}
	for _, name := range names {
		found := c.lookUp(name, ipv6)
		if len(found) == 0 {
			if at != nil && !isPattern(name) {
				return Family{}, at.wrong("there is no pool %q", name)
			}
			f.Rejected = append(f.Rejected, missing(name, ipv6))
		}
		for _, pool := range found {
			if seen[pool.Name] {
				continue
			}
			seen[pool.Name] = true
			candidate, rejection := c.filter(pool, ipv6)
			switch {
			case rejection == nil:
				f.Pools = append(f.Pools, c.byPreference(candidate)...)
			case at != nil && rejection.Reason == WrongFamily:
				return Family{}, at.wrong("pool %s: %s", pool.Name, rejection.Detail)
			default:
				f.Rejected = append(f.Rejected, *rejection)
			}
		}
	}
	kept, rejected := c.keptUnnamed(ipv6, seen)
	f.Pools, f.Rejected = append(f.Pools, kept...), append(f.Rejected, rejected...)
	if len(f.Pools) == 0 && len(names) == 0 {
		return Family{}, nil
	}
	if len(f.Pools) == 0 {
		return Family{}, c.none(ipv6, f.Rejected)
	}
	slices.SortStableFunc(f.Pools, func(a, b Candidate) int {
		return slices.Compare(closeness(&b.Pool.Spec), closeness(&a.Pool.Spec))
	})
	return f, nil
}

// lookUp returns the pool of that name, or the pools of the family that match a pattern, sorted.
func (c chooser) lookUp(name string, ipv6 bool) []*v1alpha1.IPPool {
	var found []*v1alpha1.IPPool
	for _, p := range c.pools {
		if !isPattern(name) {
			if p.Name == name {
				return []*v1alpha1.IPPool{p}
			}
			continue
		}
		if ok, err := path.Match(name, p.Name); err == nil && ok && isIPv6(p) == ipv6 {
			found = append(found, p)
		}
	}
	return found
}

func (c chooser) none(ipv6 bool, rejected []Rejection) error {
	return &NoPoolError{IPv6: ipv6, Interface: c.req.Describe(), Source: c.names.source, Rejected: rejected}
}

// closeness ranks how narrowly a pool selects pods. The first element that differs decides.
func closeness(s *v1alpha1.IPPoolSpec) []int {
	return []int{
		rank(false, isSet(s.PodAffinity)),
		rank(len(s.NodeName) > 0, isSet(s.NodeAffinity)),
		rank(len(s.NamespaceName) > 0, isSet(s.NamespaceAffinity)),
		rank(len(s.MultusName) > 0, false),
	}
}

// rank puts names before a selector, and a selector before nothing.
func rank(names, selector bool) int {
	switch {
	case names:
		return 2
	case selector:
		return 1
	}
	return 0
}

// meantForOthers reports whether the affinities rejected every pool.
func meantForOthers(rejected []Rejection) bool {
	affinities := []Reason{NodeName, NodeAffinity, OtherParent, NamespaceName, NamespaceAffinity, PodAffinity, Application, MultusName}
	return !slices.ContainsFunc(rejected, func(r Rejection) bool { return !slices.Contains(affinities, r.Reason) })
}

func missing(name string, ipv6 bool) Rejection {
	switch {
	case !isPattern(name):
		return Rejection{name, NotFound, "it does not exist"}
	case !isValid(name):
		return Rejection{name, NotFound, "it is not a valid pattern"}
	case ipv6:
		return Rejection{name, NotFound, "no IPv6 pool matches this pattern"}
	}
	return Rejection{name, NotFound, "no IPv4 pool matches this pattern"}
}

func sortedByName(pools []v1alpha1.IPPool) []*v1alpha1.IPPool {
	sorted := make([]*v1alpha1.IPPool, len(pools))
	for i := range pools {
		sorted[i] = &pools[i]
	}
	slices.SortFunc(sorted, func(a, b *v1alpha1.IPPool) int { return strings.Compare(a.Name, b.Name) })
	return sorted
}
