// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"context"
	"net/netip"
	"reflect"
	"time"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// unseenLife is the longest time that the cache may take to show a lease after its create.
const unseenLife = time.Minute

// item is a Warm lease that an attendance proves and watches. The keeper's lock guards it.
type item struct {
	// name, pair and addr do not change.
	name string
	pair Pair
	addr netip.Addr
	made time.Time
	// params of the proof. renew ends a proof that used older ones.
	params segment.ProbeParams
	renew  context.CancelFunc
	// lease as last read or written.
	lease *v1alpha1.IPLease
	// seen: the cache has shown the lease.
	seen bool
	// watch is nil until the address is watched.
	watch  Watch
	proven bool
	// parent is the ifindex of the present watch, or of the last one.
	parent int
	// taken by an ADD.
	taken bool
	// done: the lease was bound, quarantined or released. The item stays until the cache shows
	// that: otherwise the cached lease would look like one of an earlier agent.
	done bool
	// stop ends the attendance.
	stop context.CancelFunc
}

func newItem(l *v1alpha1.IPLease, params segment.ProbeParams, now time.Time, stop context.CancelFunc) *item {
	return &item{
		name: l.Name, pair: Pair{l.Spec.Pool, l.Spec.Parent}, addr: l.Spec.Addr(), params: params, made: now, lease: l, stop: stop,
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

// gone reports whether the lease has ended. shown is the Warm lease in the cache, or nil.
func (i *item) gone(shown *v1alpha1.IPLease, now time.Time) bool {
	switch {
	case shown != nil:
		return shown.UID != i.lease.UID
	case i.taken:
		return false // the ADD calls PutBack or Ended
	}
	return i.seen || now.Sub(i.made) > unseenLife
}

// setParams starts a new proof if the pool's probe parameters have changed.
func (i *item) setParams(params segment.ProbeParams) {
	if reflect.DeepEqual(i.params, params) {
		return
	}
	i.params = params
	i.proveAnew()
}

// setParent starts a new proof if another interface has the parent's name now.
func (i *item) setParent(parent int) {
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

// refresh takes the cached lease if it is newer.
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

// reconcile forgets the items that have ended by the cached leases. It returns the leases for Plan.
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
			i.setParams(segment.ParamsOf(c.Pool))
		}
		if parent, exists := v.parents[i.pair.Parent]; exists {
			i.setParent(parent)
		}
		if !i.done {
			facts = append(facts, LeaseFact{Name: name, Addr: i.addr, Pair: i.pair, Condition: i.condition()})
		}
	}
	for name, l := range shown {
		if k.items[name] == nil {
			facts = append(facts, LeaseFact{Name: name, Addr: l.Spec.Addr(), Pair: Pair{l.Spec.Pool, l.Spec.Parent}})
		}
	}
	return facts
}

// count sets the gauges of Warm leases.
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
