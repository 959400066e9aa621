// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/internal/poolset"
)

// RequestedError is the error of a requested address that the interface cannot get.
type RequestedError struct {
	Addr      netip.Addr
	Interface string // "pod ns/name interface eth0"
	Problem   string // a clause for people: "it is the gateway of pool a"
}

func (e *RequestedError) Error() string {
	return fmt.Sprintf("requested address %s for %s: %s", e.Addr, e.Interface, e.Problem)
}

// honour restricts the families to the requested addresses. An address of no pool is an error.
func (c chooser) honour(choice *Choice) error {
	for _, addr := range c.req.IPs {
		addr = addr.Unmap()
		wrong := func(format string, args ...any) error {
			return &RequestedError{addr, c.req.Describe(), fmt.Sprintf(format, args...)}
		}
		f := choice.family(addr.Is6())
		if f == nil {
			return wrong("no pool of its family is chosen")
		}
		if f.Requested.IsValid() {
			return wrong("%s is requested as well, an interface gets one address of a family", f.Requested)
		}
		for i, candidate := range f.Pools {
			isKept := slices.Contains(c.req.Kept, Kept{Addr: addr, Pool: candidate.Pool.Name})
			if isKept || candidate.Set.Contains(addr) && candidate.Pool.TakesIPRequests() {
				f.Requested, f.Pools = addr, f.Pools[i:i+1:i+1]
				break
			}
		}
		if !f.Requested.IsValid() {
			return wrong("%s", c.refused(f.Pools, addr))
		}
	}
	return nil
}

// refused returns the reason why none of the pools hands out an address. A pool that has the address
// knows the reason better than one that has only its subnet.
func (c chooser) refused(pools []Candidate, addr netip.Addr) string {
	nearest := -1
	for i, candidate := range pools {
		if !candidate.Subnet.Contains(addr) {
			continue
		}
		if all, err := poolset.Addresses(candidate.Pool); err == nil && all.Contains(addr) {
			nearest = i
			break
		}
		if nearest < 0 {
			nearest = i
		}
	}
	if nearest < 0 {
		return "it is outside of the pools " + poolNames(pools)
	}
	return c.withheld(pools[nearest], addr)
}

// withheld returns the reason why a pool does not hand out an address of its subnet.
func (c chooser) withheld(from Candidate, addr netip.Addr) string {
	spec := &from.Pool.Spec
	if !from.Pool.TakesIPRequests() {
		return "pool " + from.Pool.Name + " takes no requests for an address (ipRequests: false)"
	}
	if addr == from.Pool.Gateway() {
		return "it is the gateway of pool " + from.Pool.Name
	}
	if slices.Contains(from.Pool.NeverLeased(), addr) {
		return "it is a virtual address of pool " + from.Pool.Name + " (sourceGuardAllow.cidrs)"
	}
	if poolset.Hostless(from.Subnet).Contains(addr) {
		return "no host may have this address of the subnet " + from.Subnet.String()
	}
	if excluded, err := poolset.Parse(spec.ExcludeIPs); err == nil && excluded.Contains(addr) {
		return "it is excluded from pool " + from.Pool.Name
	}
	switch all, err := poolset.Addresses(from.Pool); {
	case err != nil || !all.Contains(addr):
	case c.reserved.Contains(addr):
		return "it is reserved"
	case from.Closed != nil:
		return "pool " + from.Pool.Name + ": " + from.Closed.Detail
	case !from.Set.Contains(addr):
		return "another pool hands it out; the condition Overlapping of pool " + from.Pool.Name + " names that pool"
	}
	return "it is outside of the ips of pool " + from.Pool.Name
}

// family returns the choice's family, or nil.
func (c *Choice) family(ipv6 bool) *Family {
	for i := range c.Families {
		if c.Families[i].IPv6 == ipv6 {
			return &c.Families[i]
		}
	}
	return nil
}

func poolNames(candidates []Candidate) string {
	names := make([]string, len(candidates))
	for i, c := range candidates {
		names[i] = c.Pool.Name
	}
	return fmt.Sprint(names)
}
