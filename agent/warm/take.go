package warm

import (
	"cmp"
	"slices"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/segment"
)

// Take implements holder.Warm: of the leases that are ready on the parent it
// takes the oldest, unless the wish allows for others.
func (k *Keeper) Take(w holder.WarmWish) (holder.WarmLease, bool) {
	got, ok := k.take(w)
	if !w.Any {
		k.Metrics.WarmTaken(w.Pool, ok)
	}
	return got, ok
}

func (k *Keeper) take(w holder.WarmWish) (holder.WarmLease, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var fit []*item
	for _, i := range k.items {
		if !i.taken && !i.done && fits(w, i) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return holder.WarmLease{}, false
	}
	best := slices.MinFunc(fit, func(a, b *item) int {
		return cmp.Or(rank(w, a)-rank(w, b), a.made.Compare(b.made), a.addr.Compare(b.addr))
	})
	best.taken = true
	return holder.WarmLease{IPLease: best.lease, Ready: rank(w, best) == 0}, true
}

// Doubt implements holder.Warm. The watcher may be late, the kernel is not.
func (k *Keeper) Doubt(l holder.WarmLease) (segment.Doubt, segment.Answer) {
	k.mu.Lock()
	var watch Watch
	if i := k.items[l.Name]; i != nil {
		watch = i.watch
	}
	k.mu.Unlock()
	if watch == nil {
		return segment.DoubtUnproven, segment.Answer{}
	}
	doubt, answer, err := watch.Doubt()
	if err != nil {
		return segment.DoubtUnproven, segment.Answer{}
	}
	return doubt, answer
}

func fits(w holder.WarmWish, i *item) bool {
	if i.pair.Pool != w.Pool || w.Addr.IsValid() && w.Addr != i.addr || !w.Has(i.addr) {
		return false
	}
	return w.Any || rank(w, i) == 0
}

// rank is 0 for a lease that can be bound at once.
func rank(w holder.WarmWish, i *item) int {
	if i.proven && i.pair.Parent == w.Parent && i.parent == w.ParentIndex && i.params.Mode == w.Mode {
		return 0
	}
	return 1
}

// PutBack implements holder.Warm.
func (k *Keeper) PutBack(l holder.WarmLease) {
	k.mu.Lock()
	i := k.items[l.Name]
	k.mu.Unlock()
	if i != nil {
		k.untake(i)
	}
}

func (k *Keeper) untake(i *item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i.taken = false
}

// Ended implements holder.Warm.
func (k *Keeper) Ended(l holder.WarmLease) {
	k.mu.Lock()
	if i := k.items[l.Name]; i != nil {
		i.taken, i.done = false, true
		i.stop()
	}
	k.mu.Unlock()
	k.Wake()
}
