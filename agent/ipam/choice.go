package ipam

import (
	"net/netip"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Choice is where the addresses of one interface may come from.
type Choice struct {
	// Families are the families that the interface gets one address of each,
	// IPv4 first: all of them or none.
	Families []Family
	// CleanGateway asks for no default route through this interface.
	CleanGateway bool
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
	// Requested is the address asked for, or the zero value. It is in Pools[0],
	// which is then the only one.
	Requested netip.Addr
	// Interface is what the address is for, for people: "pod ns/name interface eth0".
	Interface string
}

// Candidate is a pool with what it may hand out here.
type Candidate struct {
	Pool   *v1alpha1.IPPool
	Subnet netip.Prefix
	// Set is Addresses without the reserved ones.
	Set Set
}
