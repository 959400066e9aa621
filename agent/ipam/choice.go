package ipam

import (
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Choice is where the addresses of one interface may come from.
type Choice struct {
	// Families are the families that the interface gets one address of each,
	// IPv4 first: all of them or none.
	Families []Family
}

// Family is the answer for one address family.
type Family struct {
	IPv6 bool
	// Source says who named the pools, for people.
	Source string
	// Pools in the order in which they are tried; never empty.
	Pools []Candidate
	// Rejected are the candidates that were ruled out.
	Rejected []Rejection
	// PodNamed tells that an annotation of the pod itself names the pools, and
	// Candidates are all of them then, also those that were ruled out.
	PodNamed   bool
	Candidates []string
	// Requested is the address asked for, or the zero value. It is in Pools[0],
	// which is then the only one.
	Requested netip.Addr
	// Interface is what the address is for, for people: "pod ns/name interface eth0".
	Interface string
	// Default tells whether the gateway of the pool is the pod's default route of
	// this family. Routes are those that the pod asks for, through addresses of
	// the subnet of any of the pools.
	Default bool
	Routes  []Route
}

// Candidate is a pool with what it may hand out here.
type Candidate struct {
	Pool   *v1alpha1.IPPool
	Subnet netip.Prefix
	// Set is Addresses without the reserved ones. It is empty where Closed is set.
	Set Set
	// Closed is why the pool gives nothing new, and only what is kept for the pod.
	Closed *Rejection
}

// Left tells whether the pod's own annotation names pools, and not this one: who
// wrote it asks for an address of another pool.
func (f Family) Left(pool string) bool { return f.PodNamed && !slices.Contains(f.Candidates, pool) }

// Open returns the family with the pools that give new addresses only. The
// error is a *NoPoolError when there are none.
func (f Family) Open() (Family, error) {
	var pools []Candidate
	rejected := slices.Clone(f.Rejected)
	for _, c := range f.Pools {
		if c.Closed != nil {
			rejected = append(rejected, *c.Closed)
			continue
		}
		pools = append(pools, c)
	}
	if len(pools) == 0 {
		return Family{}, &NoPoolError{IPv6: f.IPv6, Interface: f.Interface, Source: f.Source, Rejected: rejected}
	}
	f.Pools, f.Rejected = pools, rejected
	return f, nil
}
