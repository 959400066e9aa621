package ipam

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// remember is how long a lease just met counts as in use although the
	// bitmap, which is published about once a second, does not show it yet.
	remember = 10 * time.Second
	// shareScan bounds the walk through the own share, in addresses looked at.
	shareScan = 1 << 16
	// restScan bounds the walk through the rest. No store holds so many
	// leases, so one of as many addresses is free.
	restScan = 1 << 24
)

// View is what is known about a pool when an address is picked. All of it
// but Set is a hint, unless Exact is set.
type View struct {
	// Set may be handed out; Subnet is what the offsets of InUse count from.
	Set    Set
	Subnet netip.Prefix
	// InUse marks what had a lease, or cooled down, when it was published.
	InUse Bitmap
	Share Share
	// Cooldown is how long an address freed here is left alone.
	Cooldown time.Duration
	// Cooling allows what cools down.
	Cooling bool
	// Sighted tells that somebody was heard to speak for an address. Such an
	// address is never picked. Nil means that nobody was heard.
	Sighted func(netip.Addr) bool
	// Taken tells that an address is known to have a lease, or was tried
	// already for this interface. Nil means that nothing is known.
	Taken func(netip.Addr) bool
	// Exact says that Taken is the truth. What has no lease although InUse or
	// the Rotation's memory shows one was freed a moment ago, and cools down.
	Exact bool
}

// Rotation is the place of this node in one pool. As host-local's round robin
// does, it goes on after the address handed out last, so that an address just
// freed, whose old holder may still be going down, is the last to come back.
// Safe for concurrent use.
type Rotation struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	rand *rand.Rand
	last netip.Addr
	// picked are proposals not settled yet.
	picked map[netip.Addr]struct{}
	// leased are addresses with a lease, by when it was met.
	leased map[netip.Addr]time.Time
	// freed are the addresses that cool down, oldest first; the last of them
	// stays until another is freed, however short the cooldown.
	freed []cooling
}

type cooling struct {
	addr netip.Addr
	at   time.Time
}

// NewRotation starts after last, or at random where last is the zero value.
// The Rotation owns r from then on.
func NewRotation(last netip.Addr, r *rand.Rand, c clock.PassiveClock) *Rotation {
	return &Rotation{
		clock: c, rand: r, last: last,
		picked: map[netip.Addr]struct{}{},
		leased: map[netip.Addr]time.Time{},
	}
}

// Pick proposes an address, and keeps concurrent calls from proposing it until
// Settle. It is the first of:
//  1. of the own share, in rotating order, what nothing is known against;
//  2. of the rest, at random, since all nodes meet there, the same;
//  3. if Cooling, what was freed here, longest ago first;
//  4. if Cooling and Exact, what else has no lease, at random;
//  5. likewise, what a concurrent call tries: it may fail.
//
// It is false when there is none.
func (r *Rotation) Pick(v View) (netip.Addr, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(v.Cooldown)

	fresh := func(a netip.Addr) bool { return !r.isPicked(a) && !r.hinted(v, a) && !r.cools(a) && v.allows(a) }
	addr, ok := r.inShare(v, fresh)
	if ok {
		r.last = addr
	} else {
		addr, ok = r.anywhere(v.Set, fresh)
	}
	if !ok && v.Cooling {
		addr, ok = r.longestFreed(v)
	}
	if !ok && v.Cooling && v.Exact {
		addr, ok = r.anywhere(v.Set, func(a netip.Addr) bool { return !r.isPicked(a) && v.allows(a) })
	}
	if !ok && v.Cooling && v.Exact {
		addr, ok = r.anywhere(v.Set, v.allows)
	}
	if ok {
		r.picked[addr] = struct{}{}
	}
	return addr, ok
}

// allows tells whether an address is neither taken nor sighted. A sighting is the
// dearest to know: the kernel is asked about what all else speaks for.
func (v View) allows(a netip.Addr) bool {
	return !(v.Taken != nil && v.Taken(a)) && !(v.Sighted != nil && v.Sighted(a))
}

// Settle ends what Pick began. leased says that the address has a lease now,
// whoever's.
func (r *Rotation) Settle(addr netip.Addr, leased bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.picked, addr)
	if leased {
		r.leased[addr] = r.clock.Now()
		r.thaw(addr)
	}
}

// Freed starts the cooling of an address whose lease this node has deleted.
func (r *Rotation) Freed(addr netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.leased, addr)
	r.thaw(addr)
	r.freed = append(r.freed, cooling{addr, r.clock.Now()})
}

// Last returns the address that the rotation goes on after; the zero value before the first.
func (r *Rotation) Last() netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// inShare walks the own share, starting after the last address handed out.
func (r *Rotation) inShare(v View, fits func(netip.Addr) bool) (netip.Addr, bool) {
	n := v.Set.Len()
	if n == 0 {
		return netip.Addr{}, false
	}
	var at uint64
	if r.last.IsValid() {
		at = v.Set.Rank(r.last)
		if v.Set.Contains(r.last) {
			at++
		}
	} else {
		at = r.rand.Uint64N(n)
	}
	for range min(n, shareScan) {
		if at >= n {
			at = 0
		}
		if addr := v.Set.At(at); v.Share.Has(addr) && fits(addr) {
			return addr, true
		}
		at++
	}
	return netip.Addr{}, false
}

// anywhere walks a set from a random place in random strides, which have no
// factor in common with its length and so meet each address once.
func (r *Rotation) anywhere(set Set, fits func(netip.Addr) bool) (netip.Addr, bool) {
	n := set.Len()
	if n == 0 {
		return netip.Addr{}, false
	}
	at, stride := r.rand.Uint64N(n), 1+r.rand.Uint64N(n)
	for gcd(stride, n) != 1 {
		stride = 1 + r.rand.Uint64N(n)
	}
	for range min(n, restScan) {
		if addr := set.At(at); fits(addr) {
			return addr, true
		}
		if at >= n-stride {
			at -= n - stride
		} else {
			at += stride
		}
	}
	return netip.Addr{}, false
}

// longestFreed returns the first of what was freed here.
func (r *Rotation) longestFreed(v View) (netip.Addr, bool) {
	for _, c := range r.freed {
		if v.Set.Contains(c.addr) && v.allows(c.addr) && !r.isPicked(c.addr) {
			return c.addr, true
		}
	}
	return netip.Addr{}, false
}

func (r *Rotation) isPicked(addr netip.Addr) bool {
	_, ok := r.picked[addr]
	return ok
}

// hinted tells whether the bitmap, or a lease just met, speaks against an address.
func (r *Rotation) hinted(v View, addr netip.Addr) bool {
	if _, ok := r.leased[addr]; ok {
		return true
	}
	offset, ok := Offset(v.Subnet, addr)
	return ok && v.InUse.Has(offset)
}

func (r *Rotation) cools(addr netip.Addr) bool {
	for _, c := range r.freed {
		if c.addr == addr {
			return true
		}
	}
	return false
}

// thaw ends the cooling of one address.
func (r *Rotation) thaw(addr netip.Addr) {
	for i, c := range r.freed {
		if c.addr == addr {
			r.freed = append(r.freed[:i:i], r.freed[i+1:]...)
			return
		}
	}
}

// forget drops what is too old to matter.
func (r *Rotation) forget(cooldown time.Duration) {
	now := r.clock.Now()
	for len(r.freed) > 1 && now.Sub(r.freed[0].at) >= cooldown {
		r.freed = r.freed[1:]
	}
	for addr, met := range r.leased {
		if now.Sub(met) >= remember {
			delete(r.leased, addr)
		}
	}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
