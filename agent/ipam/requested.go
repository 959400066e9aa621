// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// RequestedError is the error of a requested address that the interface cannot get.
type RequestedError struct {
	Addr      netip.Addr
	Interface string // "pod ns/name interface eth0"
	// By names the entry of the annotation that requests it. It is empty for CNI and Multus.
	By      string
	Problem string // a clause for people: "it is the gateway of pool a"
	// Reserved: a ReservedIP requests it.
	Reserved bool
	// KeptReady names the node that keeps the address Warm, and is asked to release it.
	KeptReady string
	Err       error // may be nil
}

func (e *RequestedError) Error() string {
	if e.By == "" {
		return fmt.Sprintf("requested address %s for %s: %s", e.Addr, e.Interface, e.Problem)
	}
	text := fmt.Sprintf("requested address %s for %s, %s: %s", e.Addr, e.Interface, e.By, e.Problem)
	switch {
	case e.KeptReady != "":
	case e.Reserved:
		text += "; free this address, or change the ips of the ReservedIP"
	default:
		text += "; free this address, or name another one there"
	}
	return text
}

// Unwrap returns the reason, if it has a type of its own.
func (e *RequestedError) Unwrap() error { return e.Err }

// ReservationError is the error of an interface of a StatefulSet's pod whose ordinal is beyond the list of a ReservedIP
// for the StatefulSet.
type ReservationError struct {
	Interface       string // "pod ns/name interface eth0"
	ReservedIP, Pod string
}

func (e *ReservationError) Error() string {
	return fmt.Sprintf("%s: ReservedIP %s has no address for the ordinal of %s: add addresses to its ips, or scale the StatefulSet down",
		e.Interface, e.ReservedIP, e.Pod)
}

// KeptReady returns the node that keeps a requested address Warm, if this is the reason of an error.
func KeptReady(err error) (node string, ok bool) {
	e, ok := errors.AsType[*RequestedError](err)
	if !ok || e.KeptReady == "" {
		return "", false
	}
	return e.KeptReady, true
}

// honour restricts the families to the wished addresses. An address of no pool is an error.
func (c chooser) honour(choice *Choice) error {
	for _, addr := range c.req.IPs {
		addr = addr.Unmap()
		wish := Wish{Addrs: []netip.Addr{addr}}
		if other := c.said.wishOf(addr.Is6()); other != nil && !slices.Contains(other.Addrs, addr) {
			return c.wrong(wish, 0, "%s names other addresses", other.By)
		}
		if err := c.grant(choice, wish); err != nil {
			return err
		}
	}
	for _, w := range c.said.wishes {
		if f := choice.family(w.Addrs[0].Is6()); f != nil && (f.Wish != nil || c.keepsAnother(f, w)) {
			continue // CNI requests one of these addresses, or a migration keeps that of the guest
		}
		if err := c.grant(choice, w); err != nil {
			return err
		}
	}
	return c.honourReservations(choice)
}

// wrong returns the error of an address of a wish.
func (c chooser) wrong(w Wish, i int, format string, args ...any) error {
	return &RequestedError{Addr: w.Addrs[i], Interface: c.req.Describe(), By: w.describe(i), Reserved: w.Reserved, Problem: fmt.Sprintf(format, args...)}
}

// grant restricts a family to the addresses of a wish.
func (c chooser) grant(choice *Choice, w Wish) error {
	f := choice.family(w.Addrs[0].Is6())
	if f == nil {
		return c.wrong(w, 0, "no pool of its family is chosen")
	}
	if f.Wish != nil {
		return c.wrong(w, 0, "%s is requested as well, an interface gets one address of a family", f.Wish.Addrs[0])
	}
	only := make([][]netip.Addr, len(f.Pools))
	var elsewhere error
	for i, addr := range w.Addrs {
		at := slices.IndexFunc(f.Pools, func(candidate Candidate) bool {
			return slices.Contains(c.req.Kept, Kept{Addr: addr, Pool: candidate.Pool.Name}) ||
				candidate.Set.Contains(addr) && (candidate.Pool.TakesIPRequests() || c.isGranted(candidate.Pool, addr))
		})
		if at >= 0 {
			only[at] = append(only[at], addr)
			continue
		}
		other, isHere := c.otherPool(f, addr)
		switch err := c.wrong(w, i, "%s", c.refused(f.Pools, addr)+other); {
		case !isHere || !w.Shared:
			return err
		case elsewhere == nil:
			elsewhere = err // pods on other nodes may have it
		}
	}
	var pools []Candidate
	for i, candidate := range f.Pools {
		if len(only[i]) > 0 {
			pools = append(pools, candidate.reducedTo(only[i]))
		}
	}
	if len(pools) == 0 {
		return elsewhere
	}
	f.Pools, f.Wish = pools, &w
	if !w.Shared {
		f.Requested = w.Addrs[0]
	}
	return nil
}

// reducedTo returns the candidate with some of its addresses. A pool that is closed has none in its set.
func (c Candidate) reducedTo(addrs []netip.Addr) Candidate {
	c.Only = addrs
	if c.Closed == nil {
		c.Set = poolset.Of(addrs...).Minus(poolset.Of(addrs...).Minus(c.Set))
	}
	return c
}

// otherPool is a clause about a pool that has an address if none of the family's pools has it. rejected: it is one of
// those that do not serve the interface here.
func (c chooser) otherPool(f *Family, addr netip.Addr) (text string, rejected bool) {
	has := func(pool *v1alpha1.IPPool) bool {
		all, err := poolset.Addresses(pool)
		return err == nil && all.Contains(addr)
	}
	if slices.ContainsFunc(f.Pools, func(p Candidate) bool { return has(p.Pool) }) {
		return "", false
	}
	for _, r := range f.Rejected {
		for _, pool := range c.lookUp(r.Pool, f.IPv6) {
			if has(pool) {
				return fmt.Sprintf("; pool %s has it, but does not serve the interface: %s", pool.Name, r.Detail), true
			}
		}
	}
	inSubnet := func(p Candidate) bool { return p.Subnet.Contains(addr) }
	for _, pool := range c.pools {
		if has(pool) && !slices.ContainsFunc(f.Pools, inSubnet) {
			return fmt.Sprintf("; pool %s has it, but is not one of the pools of %s", pool.Name, f.Source), false
		}
	}
	return "", false
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
	isGranted := c.isGranted(from.Pool, addr)
	if !from.Pool.TakesIPRequests() && !isGranted {
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
	case c.reserved.Contains(addr) && !isGranted:
		return "it is reserved" + c.reservedBy(from.Pool, addr)
	case from.Closed != nil:
		return "pool " + from.Pool.Name + ": " + from.Closed.Detail
	case !from.Set.Contains(addr):
		return "another pool hands it out; the condition Overlapping of pool " + from.Pool.Name + " names that pool"
	}
	return "it is outside of the ips of pool " + from.Pool.Name
}

// reservedBy is a clause about the reservation that keeps an address of a pool from the pod. One that keeps it for the pod
// is not the reason, unless it is for pools of another network, or two do.
func (c chooser) reservedBy(pool *v1alpha1.IPPool, addr netip.Addr) string {
	var own []string
	all := c.req.reservedAt(addr)
	for i := range all {
		r := &all[i]
		if set, _ := poolset.ReservedBy(r); !set.Contains(addr) {
			continue
		}
		isOwn := slices.ContainsFunc(poolset.Grants(all[i:i+1], c.req.Pod.holder()), func(g poolset.Grant) bool { return g.Set.Contains(addr) })
		switch {
		case isOwn && r.Spec.Network == pool.Spec.Network:
			own = append(own, poolset.Title(r))
		case isOwn:
			return fmt.Sprintf(" by %s, for pools of network %q", poolset.Title(r), r.Spec.Network)
		default:
			return " by " + poolset.Title(r)
		}
	}
	if len(own) == 0 {
		return ""
	}
	return " by " + strings.Join(own, " and ")
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
