package holder

import (
	"net/netip"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Warm is the stock of this node's Warm leases. *warm.Keeper implements it.
type Warm interface {
	// Take keeps a lease from everybody else until PutBack or Ended.
	Take(WarmWish) (WarmLease, bool)
	// Doubt is what has come up since against a lease that was taken as ready, by
	// the kernel's word; DoubtNone if nothing has. Of DoubtSpoken it says who.
	Doubt(WarmLease) (segment.Doubt, segment.Answer)
	// PutBack gives back a lease that was not written.
	PutBack(WarmLease)
	// Ended tells that a lease is Warm no more.
	Ended(WarmLease)
	// Used tells that a pod of this node got an address of a pool on a parent.
	Used(pool, parent string)
}

// WarmWish says which Warm leases will do.
type WarmWish struct {
	Pool, Parent string
	// ParentIndex is the parent's ifindex: another one may have its name by now.
	ParentIndex int
	// Mode of the pool: what was proven by another one is not ready.
	Mode v1alpha1.ConflictMode
	// Has tells whether the pool hands an address out.
	Has func(netip.Addr) bool
	// Addr, if it is valid, is the only address that will do.
	Addr netip.Addr
	// Any: a lease that is not ready will do as well.
	Any bool
}

// WarmLease is a Warm lease that was taken from the stock.
type WarmLease struct {
	*v1alpha1.IPLease
	// Ready: its address was proven free on the wished parent, and watched since. The
	// watcher may be late by a moment, Doubt is not.
	Ready bool
}
