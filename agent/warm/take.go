package warm

import (
	"cmp"
	"slices"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/segment"
)

// Take implements holder.Warm. What it returns was proven, and nobody has
// spoken for it up to this moment, unless the wish allows for others.
func (k *Keeper) Take(w holder.WarmWish) (holder.WarmLease, bool) {
	got, ok := k.take(w)
	if !w.Any {
		k.Metrics.WarmTaken(w.Pool, ok)
	}
	return got, ok
}

func (k *Keeper) take(w holder.WarmWish) (holder.WarmLease, bool) {
	tried := map[*item]bool{}
	for {
		i, got, watch := k.pick(w, tried)
		if i == nil {
			return holder.WarmLease{}, false
		}
		if got.Ready {
			// The watcher may be late by a moment, the kernel is not.
			doubt, _, err := watch.Doubt()
			got.Ready = err == nil && doubt == segment.DoubtNone
		}
		if got.Ready || w.Any {
			return got, true
		}
		tried[i] = true
		k.untake(i)
	}
}

// pick takes the best lease for a wish that was not tried yet: of those that
// are ready on the parent the oldest.
func (k *Keeper) pick(w holder.WarmWish, tried map[*item]bool) (*item, holder.WarmLease, Watch) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var fit []*item
	for _, i := range k.items {
		if !i.taken && !i.done && !tried[i] && fits(w, i) {
			fit = append(fit, i)
		}
	}
	if len(fit) == 0 {
		return nil, holder.WarmLease{}, nil
	}
	best := slices.MinFunc(fit, func(a, b *item) int {
		return cmp.Or(rank(w, a)-rank(w, b), a.made.Compare(b.made), a.addr.Compare(b.addr))
	})
	best.taken = true
	return best, holder.WarmLease{IPLease: best.lease, Ready: rank(w, best) == 0}, best.watch
}

func fits(w holder.WarmWish, i *item) bool {
	if i.pair.Pool != w.Pool || w.Addr.IsValid() && w.Addr != i.addr || !w.Has(i.addr) {
		return false
	}
	return w.Any || rank(w, i) == 0
}

// rank is 0 for a lease that can be bound at once.
func rank(w holder.WarmWish, i *item) int {
	if i.proven && i.pair.Parent == w.Parent && i.params.Mode == w.Mode {
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
