// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Wish selects Warm leases.
type Wish struct {
	Pool, Parent string
	// ParentIndex is the parent's ifindex. Another interface may have the parent's name now.
	ParentIndex int
	// Mode of the pool. A proof in another mode does not make a lease ready.
	Mode v1alpha1.ConflictMode
	// Has reports whether the pool hands out an address.
	Has func(netip.Addr) bool
	// Addr selects one address, if it is valid.
	Addr netip.Addr
	// Any selects leases that are not ready as well.
	Any bool
}

// Stocked is a Warm lease that an ADD has taken.
type Stocked struct {
	*v1alpha1.IPLease
	// Ready: the address was proven free on the wished parent, and was watched since. The watch may
	// report a doubt late; Doubt reads the kernel's state.
	Ready bool
}

// Take implements acquire.Warm: it takes the oldest of the leases that are ready on the parent. With
// w.Any it falls back to other leases of the pool.
func (k *Keeper) Take(w Wish) (Stocked, bool) {
	got, ok := k.take(w)
	if !w.Any {
		k.Metrics.WarmTaken(w.Pool, ok)
	}
	return got, ok
}

func (k *Keeper) take(w Wish) (Stocked, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var fit []*item
	for _, i := range k.items {
		if !i.taken && !i.done && fits(w, i) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return Stocked{}, false
	}
	best := slices.MinFunc(fit, func(a, b *item) int {
		return cmp.Or(rank(w, a)-rank(w, b), a.made.Compare(b.made), a.addr.Compare(b.addr))
	})
	best.taken = true
	return Stocked{IPLease: best.lease, Ready: rank(w, best) == 0}, true
}

// Doubt implements acquire.Warm. It reads the kernel's state: the attendance may learn of it late.
func (k *Keeper) Doubt(l Stocked) (segment.Doubt, segment.Answer) {
	k.mu.Lock()
	var watch Watch
	if i := k.items[l.Name]; i != nil {
		watch = i.watch
	}
	k.mu.Unlock()
	if watch != nil {
		if doubt, answer, err := watch.Doubt(); err == nil {
			return doubt, answer
		}
	}
	return segment.DoubtUnproven, segment.Answer{}
}

func fits(w Wish, i *item) bool {
	if i.pair.Pool != w.Pool || w.Addr.IsValid() && w.Addr != i.addr || !w.Has(i.addr) {
		return false
	}
	return w.Any || rank(w, i) == 0
}

// rank is 0 for a lease that an ADD can bind at once, otherwise 1.
func rank(w Wish, i *item) int {
	if i.proven && i.pair.Parent == w.Parent && i.parent == w.ParentIndex && i.params.Mode == w.Mode {
		return 0
	}
	return 1
}

// PutBack implements acquire.Warm.
func (k *Keeper) PutBack(l Stocked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.items[l.Name]; i != nil {
		i.taken = false
	}
}

// Ended implements acquire.Warm.
func (k *Keeper) Ended(l Stocked) {
	k.mu.Lock()
	if i := k.items[l.Name]; i != nil {
		i.taken, i.done = false, true
		i.stop()
	}
	k.mu.Unlock()
	k.Wake()
}
