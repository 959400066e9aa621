package ipam

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"k8s.io/utils/clock"
)

// View is what is known about a pool when an address is picked. All of it
// but Set is a hint.
type View struct {
	// Set may be handed out; Subnet is what the offsets of InUse count from.
	Set    Set
	Subnet netip.Prefix
	InUse  Bitmap
	Share  Share
	// Cooldown is how long an address freed here is left alone.
	Cooldown time.Duration
	// Sighted tells that somebody was heard to speak for an address. Such an
	// address is never picked. Nil means nobody was heard.
	Sighted func(netip.Addr) bool
	// Taken tells that an address is known to have a lease, or was tried
	// already in this request. Nil means that nothing is known.
	Taken func(netip.Addr) bool
}

// Rotation is the place of this node in one pool. As host-local's round robin
// does, it goes on after the address handed out last, so that an address just
// freed, whose old holder may still be going down, is the last to come back.
// Safe for concurrent use.
type Rotation struct {
	rand  *rand.Rand
	clock clock.PassiveClock
	last  netip.Addr
}

// NewRotation starts after last, or at random where last is the zero value.
// The Rotation owns r from then on.
func NewRotation(last netip.Addr, r *rand.Rand, c clock.PassiveClock) *Rotation {
	return &Rotation{rand: r, clock: c, last: last}
}

// Pick proposes an address and keeps concurrent calls from proposing it until Settle.
func (r *Rotation) Pick(v View) (netip.Addr, bool) { return netip.Addr{}, false }

// Settle ends what Pick began, whether the address was got or not.
func (r *Rotation) Settle(a netip.Addr) {}

// Freed starts the cooling of an address.
func (r *Rotation) Freed(a netip.Addr) {}

// Last returns the address that the rotation goes on after; the zero value before the first.
func (r *Rotation) Last() netip.Addr { return r.last }
