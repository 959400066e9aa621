package warm

import (
	"context"
	"net/netip"
	"reflect"
	"time"

	"github.com/fenceline/fenceline/agent/holder"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// unseenLife is how long the cache may take to show a lease that was just created.
const unseenLife = time.Minute

// item is a Warm lease that is looked after here. The keeper's lock guards it.
type item struct {
	// name, pair and addr do not change.
	name string
	pair Pair
	addr netip.Addr
	made time.Time
	// params that the address is proven by; renew ends a proof by older ones.
	params segment.ProbeParams
	renew  context.CancelFunc
	// lease as last read or written.
	lease *v1alpha1.IPLease
	// seen: the cache has shown the lease.
	seen bool
	// watch is nil until the address is watched.
	watch  Watch
	proven bool
	// parent is the ifindex on which it is watched, or was at last.
	parent int
	// taken by an ADD.
	taken bool
	// done: the lease was bound, thrown out or given up. The item stays until the
	// cache has seen that too, lest the lease be taken for an unknown one.
	done bool
	// stop ends the attendance.
	stop context.CancelFunc
}

// newItem begins an item.
func newItem(l *v1alpha1.IPLease, params segment.ProbeParams, now time.Time, stop context.CancelFunc) *item {
	addr, _ := netip.ParseAddr(l.Spec.Address) // the API server refuses leases whose address is none
	return &item{
		name: l.Name, pair: Pair{l.Spec.Pool, l.Spec.Parent}, addr: addr, params: params, made: now, lease: l, stop: stop,
	}
}

func (i *item) condition() Condition {
	switch {
	case i.taken:
		return Taken
	case i.proven:
		return Ready
	}
	return Unproven
}

// gone tells whether the lease has ended, given what the cache shows under its
// name: nil when it shows no Warm lease.
func (i *item) gone(shown *v1alpha1.IPLease, now time.Time) bool {
	switch {
	case shown != nil:
		return shown.UID != i.lease.UID
	case i.taken:
		return false // the ADD says what became of it
	}
	return i.seen || now.Sub(i.made) > unseenLife
}

// wants has the address proven anew if the pool wants that done another way.
func (i *item) wants(params segment.ProbeParams) {
	if reflect.DeepEqual(i.params, params) {
		return
	}
	i.params = params
	i.proveAnew()
}

// follows has the address proven anew if another interface has the parent's name.
func (i *item) follows(parent int) {
	if i.watch != nil && i.parent != parent {
		i.proveAnew()
	}
}

func (i *item) proveAnew() {
	i.proven = false
	if i.renew != nil {
		i.renew()
	}
}

// refresh takes up what the cache shows of the lease.
func (i *item) refresh(shown *v1alpha1.IPLease) {
	i.seen = true
	if i.taken {
		return
	}
	known, err := lease.Token(i.lease)
	if newer, newErr := lease.Token(shown); err == nil && newErr == nil && newer > known {
		i.lease = shown
	}
}

// reconcile compares the items with what the cache shows, forgets those that
// have ended, and returns the leases as Plan needs them.
func (k *Keeper) reconcile(v view) []LeaseFact {
	shown, pools := v.leases, v.candidates
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Clock.Now()
	var facts []LeaseFact
	for name, i := range k.items {
		if i.gone(shown[name], now) {
			i.stop()
			delete(k.items, name)
			continue
		}
		if l := shown[name]; l != nil {
			i.refresh(l)
		}
		if c, exists := pools[i.pair.Pool]; exists {
			i.wants(holder.ProbeParams(c.Pool))
		}
		if parent, exists := v.parents[i.pair.Parent]; exists {
			i.follows(parent)
		}
		if !i.done {
			facts = append(facts, LeaseFact{Name: name, Addr: i.addr, Pair: i.pair, Condition: i.condition()})
		}
	}
	for name, l := range shown {
		if k.items[name] != nil {
			continue
		}
		// The API server refuses leases whose address is none.
		if addr, err := netip.ParseAddr(l.Spec.Address); err == nil {
			facts = append(facts, LeaseFact{Name: name, Addr: addr, Pair: Pair{l.Spec.Pool, l.Spec.Parent}})
		}
	}
	return facts
}

// count tells how many leases there are.
func (k *Keeper) count() {
	k.mu.Lock()
	defer k.mu.Unlock()
	ready, unproven := map[string]int{}, map[string]int{}
	for _, i := range k.items {
		pool := i.pair.Pool
		switch {
		case i.done:
		case i.proven:
			ready[pool]++
		default:
			unproven[pool]++
		}
		k.counted[pool] = true
	}
	for pool := range k.counted {
		k.Metrics.WarmLeases(pool, ready[pool], unproven[pool])
		if ready[pool]+unproven[pool] == 0 {
			delete(k.counted, pool)
		}
	}
}
