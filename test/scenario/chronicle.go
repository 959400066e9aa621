// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// chronicle records each state of the leases of a pool, as the watch reports it.
type chronicle struct {
	done chan struct{}

	mu      sync.Mutex
	entries []entry
	added   chan struct{} // closed and replaced with each entry
}

// entry is one write to a lease.
type entry struct {
	// at is the time at which the watch event arrived here, which is never before the write.
	at   time.Time
	gone bool
	v1alpha1.IPLease
}

func (e entry) String() string {
	if e.gone {
		return e.Name + " deleted"
	}
	return describe(&e.IPLease)
}

// keepChronicle starts to record, with the leases that exist. If the API server ends the watch, it
// continues at the same resourceVersion.
func (a *act) keepChronicle(ctx context.Context, pool string) *chronicle {
	leases, ofPool := &v1alpha1.IPLeaseList{}, client.MatchingFields{"spec.pool": pool}
	did(a.api.List(ctx, leases, ofPool), "list the leases of pool %s", pool)
	again := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return a.api.Watch(ctx, &v1alpha1.IPLeaseList{}, ofPool, &client.ListOptions{Raw: &o})
	}}
	w, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), leases.ResourceVersion, again)
	did(err, "watch the leases of pool %s", pool)
	c := &chronicle{done: make(chan struct{}), added: make(chan struct{})}
	for i := range leases.Items {
		c.add(entry{at: time.Now(), IPLease: leases.Items[i]})
	}
	go c.write(w)
	a.after("close the chronicle", func(context.Context) { w.Stop(); <-c.done })
	return c
}

func (c *chronicle) write(w watch.Interface) {
	defer close(c.done)
	for event := range w.ResultChan() {
		if l, ok := event.Object.(*v1alpha1.IPLease); ok {
			c.add(entry{at: time.Now(), gone: event.Type == watch.Deleted, IPLease: *l})
		}
	}
}

func (c *chronicle) add(e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries = append(c.entries, e)
	close(c.added)
	c.added = make(chan struct{})
}

// of returns the writes to the lease of an address up to now, and a channel that is closed at the
// next write.
func (c *chronicle) of(addr netip.Addr) ([]entry, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []entry
	for _, e := range c.entries {
		if e.Spec.Address == addr.String() {
			found = append(found, e)
		}
	}
	return found, c.added
}

// all returns all writes up to now, and a channel that is closed at the next write.
func (c *chronicle) all() ([]entry, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[:len(c.entries):len(c.entries)], c.added
}

// wait returns the first entry of an address, not older than since, that matches.
func (c *chronicle) wait(ctx context.Context, limit time.Duration, addr netip.Addr, since time.Time, what string, match func(entry) bool) entry {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		entries, more := c.of(addr)
		for _, e := range entries {
			if !e.at.Before(since) && match(e) {
				return e
			}
		}
		select {
		case <-ctx.Done():
			fail("waited %s for the lease of %s to be %s: %s", limit, addr, what, lastOf(entries))
		case <-c.done:
			fail("wait for the lease of %s to be %s: the watch has ended; %s", addr, what, lastOf(entries))
		case <-more:
		}
	}
}

func lastOf(entries []entry) string {
	if len(entries) == 0 {
		return "there was none"
	}
	return "the last that was seen is " + entries[len(entries)-1].String()
}

func isDeleted(e entry) bool { return e.gone }

func isQuarantined(e entry) bool { return !e.gone && e.Spec.State == v1alpha1.StateQuarantined }

// leftHolder matches if the lease no longer belongs to the holder with that UID.
func leftHolder(uid string) func(entry) bool {
	return func(e entry) bool { return e.gone || isBoundToOther(e, uid) }
}

func isBoundToOther(e entry, uid string) bool {
	return !e.gone && e.Spec.State == v1alpha1.StateBound && e.Spec.Holder != nil && e.Spec.Holder.PodUID != uid
}
