// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Choice is the pools from which one interface may get its addresses.
type Choice struct {
	// Families has the families, IPv4 first. The interface gets one address of each, or none.
	Families []Family
	// MACs are the MACs that the pod chose for addresses of the first family.
	MACs map[netip.Addr]net.HardwareAddr
}

// Family is the part of a Choice for one address family.
type Family struct {
	IPv6 bool
	// Source names the annotation or configuration that lists the pools. It is for people.
	Source string
	// Pools in the order in which they are tried; never empty.
	Pools []Candidate
	// Rejected are the candidates that were ruled out.
	Rejected []Rejection
	// Wish is the wish for addresses of this family, or nil. With it, the sets of Pools have only
	// addresses of the wish.
	Wish *Wish
	// Requested is the address of a wish that is not shared, or the zero value. If it is set, Pools has
	// exactly one element, the pool of the address.
	Requested netip.Addr
	// Interface names the interface for people: "pod ns/name interface eth0".
	Interface string
	// Default reports whether the gateway of the pool is the pod's default route of this family.
	// Routes are the routes of the pod's annotation whose next hop is in the subnets of Pools.
	Default bool
	Routes  []poolset.Route
}

// Candidate is a pool and the addresses that it may hand out to the interface.
type Candidate struct {
	Pool   *v1alpha1.IPPool
	Subnet netip.Prefix
	// Set is poolset.Own without the reserved addresses.
	Set poolset.Set
	// Only are the addresses of Set if a wish has reduced it to them.
	Only []netip.Addr
	// Closed is the reason why the pool hands out no new address, or nil. A closed pool is a
	// candidate only if an address of it is kept for the interface.
	Closed *Rejection
}

// Refuse returns the error of the requested address.
func (f Family) Refuse(problem string) *RequestedError {
	e := &RequestedError{Addr: f.Requested, Interface: f.Interface, Problem: problem}
	if f.Wish != nil {
		e.By, e.Reserved = f.Wish.describe(0), f.Wish.Reserved
	}
	return e
}

// Open returns the family with only those pools that hand out new addresses.
func (f Family) Open() (Family, error) {
	return f.Without(func(c Candidate) (*Rejection, error) { return c.Closed, nil })
}

// Without returns the family without the pools for which rule has a reason. If no pool is left, the error
// is a *NoPoolError.
func (f Family) Without(rule func(Candidate) (*Rejection, error)) (Family, error) {
	var pools []Candidate
	rejected := slices.Clone(f.Rejected)
	for _, c := range f.Pools {
		why, err := rule(c)
		switch {
		case err != nil:
			return Family{}, err
		case why != nil:
			rejected = append(rejected, *why)
		default:
			pools = append(pools, c)
		}
	}
	if len(pools) == 0 {
		return Family{}, &NoPoolError{IPv6: f.IPv6, Interface: f.Interface, Source: f.Source, Rejected: rejected}
	}
	f.Pools, f.Rejected = pools, rejected
	return f, nil
}
