// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	// forgotten is the time after which a wait counts no longer whose agent does not ask again: it has ended. Agents
	// ask about every 40 s.
	forgotten = 2 * time.Minute
	// share is the part of a processor that the passes over one pool may take: one of so many.
	share = 10
)

// waits knows which nodes wait for which pools, and of which free addresses they are told. Its methods may be called
// concurrently, but passes over the same pool may not.
//
// No address that comes free is missed. A pass first reads which nodes wait, and then the leases: it finds an address
// whose lease ended before it read them, and a later end starts another pass, which knows these nodes too. A question
// counts as answered after a pass over each of its pools that began after it.
type waits struct {
	client client.Reader
	clock  clock.PassiveClock

	mu    sync.Mutex
	nodes map[string]*asking
	// pools has the pools for which nodes wait, and those for which none does any longer until their next pass.
	pools map[string]*room
}

// asking are the waits of a node.
type asking struct {
	// round is the question, seen the time of it, and answered the last one that was answered, or "".
	round, answered string
	seen            time.Time
	// pools has the waits for each pool.
	pools map[string]waiter
	// unseen are the pools without a pass since the question.
	unseen map[string]bool
}

// room is a pool for which nodes wait.
type room struct {
	vacant []vacancy
	// all: vacant had all free addresses in the last pass, so that only the ends of leases add others.
	all bool
	// freed has the leases that ended since the last pass, by address.
	freed map[netip.Addr]string
	// next is the earliest time of the next pass.
	next time.Time
	// wanted has, for each node, its Warm leases for whose very addresses nodes wait.
	wanted map[string][]v1alpha1.LeaseVersion
}

func newWaits(reader client.Reader, c clock.PassiveClock) *waits {
	return &waits{client: reader, clock: c, nodes: map[string]*asking{}, pools: map[string]*room{}}
}

// ask takes the waits of a node. It returns the pools that need a pass.
func (w *waits) ask(node string, spec v1alpha1.LeaseHintSpec) (pools []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.nodes[node]
	switch {
	case was == nil && len(spec.Waits) == 0, was != nil && was.round == spec.Round:
		return nil
	case was == nil:
		was = &asking{}
	}
	now := &asking{round: spec.Round, answered: was.answered, seen: w.clock.Now(), pools: map[string]waiter{}, unseen: map[string]bool{}}
	if w.nodes[node] = now; len(spec.Waits) == 0 {
		delete(w.nodes, node)
	}
	for _, p := range spec.Waits {
		now.pools[p.Pool], now.unseen[p.Pool] = joined(node, now.pools[p.Pool], p), true
		if w.pools[p.Pool] == nil {
			w.pools[p.Pool] = &room{freed: map[netip.Addr]string{}}
		}
		w.pools[p.Pool].all = false // an audit, since each agent asks again and again
	}
	both := maps.Clone(now.pools) // also those for which it waits no longer
	maps.Copy(both, was.pools)
	return slices.Sorted(maps.Keys(both))
}

// joined adds a wait of a node to its others for the same pool. The zero waiter has none.
func joined(node string, others waiter, p v1alpha1.PoolWait) waiter {
	w := others
	if w.node == "" {
		w = waiter{node: node, since: p.Since.Time, picky: true, only: map[netip.Addr]bool{}}
	}
	if p.Since.Time.Before(w.since) {
		w.since = p.Since.Time
	}
	w.picky = w.picky && len(p.Addresses) > 0
	for _, text := range p.Addresses {
		if addr, err := netip.ParseAddr(text); err == nil {
			w.only[addr] = true
		}
	}
	return w
}

// answer returns what a node is told: the last question that was answered, and free addresses, of which some are
// left out if they are too many. It is unknown before the first pass.
func (w *waits) answer(node string) (round string, free []v1alpha1.FreeAddress, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.nodes[node]
	if a == nil {
		return "", nil, true
	}
	for _, pool := range slices.Sorted(maps.Keys(a.pools)) {
		for _, v := range w.pools[pool].vacant {
			if slices.Contains(v.nodes, node) {
				free = append(free, v1alpha1.FreeAddress{Pool: pool, Address: v.addr.String(), Version: v.version})
			}
		}
	}
	return a.answered, free[:min(len(free), v1alpha1.MaxHintFree)], a.answered != ""
}

// wantedOf returns the Warm leases of a node that it is to release.
func (w *waits) wantedOf(node string) (wanted []v1alpha1.LeaseVersion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pool := range slices.Sorted(maps.Keys(w.pools)) {
		wanted = append(wanted, w.pools[pool].wanted[node]...)
	}
	return wanted[:min(len(wanted), v1alpha1.MaxHintWanted)]
}

// freed notes that a lease has ended, and reports whether its pool needs a pass.
func (w *waits) freed(l *v1alpha1.IPLease) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, addr := w.pools[l.Spec.Pool], l.Spec.Addr()
	if r == nil || !addr.IsValid() {
		return false // the first pass finds it
	}
	r.freed[addr] = l.ResourceVersion
	return true
}

// isAwaited reports whether nodes wait for a pool.
func (w *waits) isAwaited(pool string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pools[pool] != nil
}

// doubt has the next pass of each pool look for all free addresses. It returns the pools.
func (w *waits) doubt() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.pools {
		r.all = false
	}
	return slices.Sorted(maps.Keys(w.pools))
}

// pass decides again which nodes are told of which free addresses of a pool. It returns the nodes whose answer has
// changed, and the time until the next pass, or 0.
func (w *waits) pass(ctx context.Context, pool string) (changed []string, next time.Duration, err error) {
	now := w.clock.Now()
	r, asked, vacant, all, left := w.begin(pool, now)
	if r == nil {
		return left, 0, nil
	}
	if pause := r.next.Sub(now); pause > 0 {
		return nil, pause, nil
	}
	var waiting []waiter
	for _, a := range asked {
		waiting = append(waiting, a.pools[pool])
	}
	look := look{now: now, whole: all, picky: true, wishes: map[netip.Addr]bool{}, wanted: map[string][]v1alpha1.LeaseVersion{}}
	for _, one := range waiting {
		look.picky = look.picky && one.picky
		maps.Copy(look.wishes, one.only)
	}
	vacant, all, err = w.vacantOf(ctx, pool, vacant, look)

	w.mu.Lock()
	defer w.mu.Unlock()
	r.next = now.Add(w.clock.Since(now) * share)
	if err != nil {
		r.all = false
		return nil, 0, err
	}
	r.all = r.all && all
	next = allot(now, waiting, vacant)
	changed = changes(r.vacant, vacant)
	for _, node := range slices.Concat(slices.Collect(maps.Keys(r.wanted)), slices.Collect(maps.Keys(look.wanted))) {
		if !slices.Equal(r.wanted[node], look.wanted[node]) {
			changed = append(changed, node)
		}
	}
	r.vacant, r.wanted = vacant, look.wanted
	for node, a := range asked {
		delete(a.unseen, pool)
		if len(a.unseen) == 0 && a.answered != a.round {
			a.answered = a.round
			changed = append(changed, node)
		}
	}
	return changed, next, nil
}

// begin returns what a pass over a pool needs: the nodes that wait for it, and the addresses that may be free, which
// are all of them or those that were known. If no node waits, it returns no room, and the nodes of which nothing is
// wanted any longer.
func (w *waits) begin(pool string, now time.Time) (r *room, asked map[string]*asking, vacant []vacancy, all bool, left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked = map[string]*asking{}
	awaited := false
	for node, a := range w.nodes {
		if _, ok := a.pools[pool]; ok {
			awaited = true
			if now.Sub(a.seen) < forgotten {
				asked[node] = a
			}
		}
	}
	if r = w.pools[pool]; r == nil || !awaited {
		delete(w.pools, pool)
		if r != nil {
			left = slices.Collect(maps.Keys(r.wanted))
		}
		return nil, nil, nil, false, left
	}
	if r.next.After(now) {
		return r, nil, nil, false, nil
	}
	for _, v := range r.vacant {
		if _, again := r.freed[v.addr]; !again {
			vacant = append(vacant, v)
		}
	}
	for addr, version := range r.freed {
		vacant = append(vacant, vacancy{addr: addr, version: version, since: now})
	}
	clear(r.freed)
	all, r.all = r.all, true // a change of the pool meanwhile makes it false again
	return r, asked, vacant, all, nil
}

// look is what a pass looks for.
type look struct {
	now time.Time
	// whole: the known addresses are all. picky: no node takes an address that is not in wishes.
	whole, picky bool
	wishes       map[netip.Addr]bool
	// wanted collects the Warm leases of wishes, by node.
	wanted map[string][]v1alpha1.LeaseVersion
}

// vacantOf returns those of the known addresses of a pool that have no lease, those of the wishes, and, if they are
// not all, further ones up to mostVacant. all reports that there are no more. Those of the wishes come first.
func (w *waits) vacantOf(ctx context.Context, name string, known []vacancy, l look) (vacant []vacancy, all bool, err error) {
	pool, set, kept, err := w.addresses(ctx, name)
	if err != nil || set.Len()+kept.Len() == 0 {
		return nil, false, err
	}
	add := func(v vacancy) error {
		lease := &v1alpha1.IPLease{}
		err := w.client.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName(pool.Spec.Network, v.addr)}, lease, client.UnsafeDisableDeepCopy)
		switch node := lease.Spec.NodeName; {
		case apierrors.IsNotFound(err) && (set.Contains(v.addr) || l.wishes[v.addr] && kept.Contains(v.addr)):
			vacant = append(vacant, v)
		case err == nil && lease.Spec.State == v1alpha1.StateWarm && l.wishes[v.addr]:
			l.wanted[node] = append(l.wanted[node], versionOf(lease))
		}
		return client.IgnoreNotFound(err)
	}
	seen := map[netip.Addr]bool{}
	for _, v := range l.wishesFirst(known) {
		seen[v.addr] = true
		if err := add(v); err != nil {
			return nil, false, err
		}
	}
	if l.whole || l.picky || len(vacant) >= mostVacant {
		return vacant[:min(len(vacant), mostVacant)], (l.whole || l.picky) && len(vacant) <= mostVacant, nil
	}
	var leases v1alpha1.IPLeaseList
	if err := w.client.List(ctx, &leases, client.UnsafeDisableDeepCopy, client.MatchingFields{cache.LeasesByPool: name}); err != nil {
		return nil, false, fmt.Errorf("list the leases of pool %s: %w", name, err)
	}
	for i := range leases.Items {
		seen[leases.Items[i].Spec.Addr()] = true
	}
	for i := range set.Len() { // each address that is skipped has a lease, or is known
		if len(vacant) == mostVacant {
			return vacant, false, nil
		}
		if addr := set.At(i); !seen[addr] {
			if err := add(vacancy{addr: addr, since: l.now}); err != nil {
				return nil, false, err
			}
		}
	}
	return vacant, true, nil
}

// wishesFirst returns the known addresses and those of the wishes, these in their order.
func (l look) wishesFirst(known []vacancy) (all []vacancy) {
	var others []vacancy
	for _, v := range known {
		if l.wishes[v.addr] {
			all = append(all, v)
		} else {
			others = append(others, v)
		}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(l.wishes), netip.Addr.Compare) {
		if !slices.ContainsFunc(all, func(v vacancy) bool { return v.addr == addr }) {
			all = append(all, vacancy{addr: addr, since: l.now})
		}
	}
	return append(all, others...)
}

// addresses returns a pool and the addresses that it hands out to everybody, and those that are kept for somebody.
// Both are empty if there is no such pool.
func (w *waits) addresses(ctx context.Context, name string) (pool *v1alpha1.IPPool, all, kept poolset.Set, err error) {
	var pools v1alpha1.IPPoolList
	if err := w.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return nil, all, kept, fmt.Errorf("list pools: %w", err)
	}
	reservations, err := poolset.Reservations(ctx, w.client)
	if err != nil {
		return nil, all, kept, err
	}
	at := slices.IndexFunc(pools.Items, func(p v1alpha1.IPPool) bool { return p.Name == name })
	if at < 0 {
		return nil, all, kept, nil
	}
	pool = &pools.Items[at]
	all, _ = poolset.Addresses(pool) // a pool that cannot be read hands out none
	own := poolset.Own(pool, all, pools.Items)
	return pool, own.Minus(poolset.ReservedSet(reservations)), own.And(poolset.KeptSet(reservations)), nil
}

// changes returns the nodes that are told of an address only before or only after a pass.
func changes(was, now []vacancy) (nodes []string) {
	type telling struct {
		node, version string
		addr          netip.Addr
	}
	told := map[telling]bool{}
	for _, all := range [][]vacancy{was, now} {
		for _, v := range all {
			for _, node := range v.nodes {
				t := telling{node, v.version, v.addr}
				told[t] = !told[t]
			}
		}
	}
	for t, changed := range told {
		if changed {
			nodes = append(nodes, t.node)
		}
	}
	return nodes
}
