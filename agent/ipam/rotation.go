// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	// remember is the time for which an address counts as in use after this node found its lease.
	// The bitmap is published about once a second, so it shows the lease later.
	remember = 10 * time.Second
	// shareScan is the greatest number of addresses that one walk through the own share visits.
	shareScan = 1 << 16
	// restScan is the greatest number of addresses that one walk through the rest visits. No API
	// server stores so many leases, so one of so many addresses is free.
	restScan = 1 << 24
)

// View is the knowledge about a pool for Pick. Set is exact, the rest hints unless Exact is set.
type View struct {
	// Set has the addresses that may be handed out. The offsets of InUse begin with Subnet.
	Set    poolset.Set
	Subnet netip.Prefix
	// InUse marks the addresses that had a lease, or cooled down, when the bitmap was published.
	InUse poolset.Bitmap
	Share Share
	// Cooldown is the time for which an address that this node freed is not picked.
	Cooldown time.Duration
	// Cooling allows addresses that cool down.
	Cooling bool
	// Sighted reports whether a frame showed that another host uses the address. Such an address
	// is never picked. Nil means that there are no sightings.
	Sighted func(netip.Addr) bool
	// Taken reports whether the address is known to have a lease, or was already tried for this
	// interface. Nil means that nothing is known.
	Taken func(netip.Addr) bool
	// Exact reports that Taken knows every lease. If InUse or the Rotation shows a lease that Taken
	// does not know, the address was freed a moment ago and cools down.
	Exact bool
}

// Rotation is the position of this node in one pool. Like the round robin of the host-local plugin,
// it continues after the address that was handed out last. An address that was just freed is
// therefore handed out last, when its old holder is down. A Rotation is safe for concurrent use.
type Rotation struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	rand *rand.Rand
	last netip.Addr
	// picked are the proposals for which Settle was not called yet.
	picked map[netip.Addr]struct{}
	// leased has the time at which this node found the lease of an address.
	leased map[netip.Addr]time.Time
	// freed are the addresses that cool down, oldest first. The last one stays until another address
	// is freed, even if the cooldown is over.
	freed []cooling
}

type cooling struct {
	addr netip.Addr
	at   time.Time
}

// NewRotation returns a Rotation that continues after last, or begins at a random address if last is the
// zero value. The Rotation owns r.
func NewRotation(last netip.Addr, r *rand.Rand, c clock.PassiveClock) *Rotation {
	return &Rotation{clock: c, rand: r, last: last, picked: map[netip.Addr]struct{}{}, leased: map[netip.Addr]time.Time{}}
}

// Pick proposes an address. Concurrent calls do not propose it again before Settle. An address is fresh
// if no lease, no cooldown, no sighting and no other call is known for it. Pick returns the first of:
//  1. a fresh address of the own share, in rotating order;
//  2. a fresh address of the whole set, at random, because there the nodes compete;
//  3. if Cooling, the address that this node freed longest ago;
//  4. if Cooling and Exact, any address without a lease, at random;
//  5. if Cooling and Exact, an address that a concurrent call tries, because that call may fail.
//
// Pick returns false if there is no such address.
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

// allows reports whether an address is neither taken nor sighted. Sighted is called last, because
// it is a system call.
func (v View) allows(a netip.Addr) bool {
	return !(v.Taken != nil && v.Taken(a)) && !(v.Sighted != nil && v.Sighted(a))
}

// Settle ends the proposal of an address. leased: it has a lease now, of this or another node.
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

// Last returns the address after which the rotation continues; zero before the first Pick.
func (r *Rotation) Last() netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// inShare returns the first fitting address of the own share after the last address handed out.
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

// anywhere returns a fitting address of a set. It walks from a random address in random strides,
// which have no common factor with the length of the set, and so visits each address once.
func (r *Rotation) anywhere(set poolset.Set, fits func(netip.Addr) bool) (netip.Addr, bool) {
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

// longestFreed returns the allowed address that this node freed longest ago.
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

// hinted reports whether the bitmap marks an address, or this node found its lease a moment ago.
func (r *Rotation) hinted(v View, addr netip.Addr) bool {
	if _, ok := r.leased[addr]; ok {
		return true
	}
	offset, ok := poolset.Offset(v.Subnet, addr)
	return ok && v.InUse.Has(offset)
}

func (r *Rotation) cools(addr netip.Addr) bool {
	return slices.ContainsFunc(r.freed, func(c cooling) bool { return c.addr == addr })
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

// forget removes the addresses whose time is over.
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

// Share is the part of every pool that this node tries first: the addresses whose hash is Index modulo
// Count. Agents with different indexes try different addresses until a share is used up. A Share is a
// hint: a wrong index costs a failed create, and never leads to a duplicate address.
type Share struct{ Index, Count int }

// Has reports whether an address belongs to the share. All agents must use the same hash.
func (s Share) Has(a netip.Addr) bool {
	if s.Count < 2 {
		return true
	}
	b := a.As16()
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	return mix(hi^mix(lo))%uint64(s.Count) == uint64(s.Index)
}

// mix is the finalizer of MurmurHash3: neighbouring addresses get very different hashes.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
