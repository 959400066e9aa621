// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// leases returns the leases of a pool.
func (a *act) leases(ctx context.Context, pool string) []v1alpha1.IPLease {
	list := &v1alpha1.IPLeaseList{}
	did(a.api.List(ctx, list, client.MatchingFields{"spec.pool": pool}), "list the leases of pool %s", pool)
	return list.Items
}

// lease returns the lease of an address.
func (a *act) lease(ctx context.Context, addr netip.Addr) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{}
	did(a.api.Get(ctx, client.ObjectKey{Name: v1alpha1.LeaseName("", addr)}, l), "read the lease of %s", addr)
	return l
}

// forceDelete deletes a lease as a person must do it.
func (a *act) forceDelete(ctx context.Context, l *v1alpha1.IPLease) {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"scenario"}}}`, v1alpha1.AnnotationForceDelete))
	err := a.api.Patch(ctx, l, patch)
	if err == nil {
		err = a.api.Delete(ctx, l)
	}
	did(client.IgnoreNotFound(err), "delete lease %s by force", l.Name)
}

// nothingIsLeft removes the namespace and judges that the ends of its pods have freed every address.
func (a *act) nothingIsLeft(ctx context.Context, pools ...string) {
	a.removeNamespace(ctx)
	for _, pool := range pools {
		// What is Retained for a StatefulSet ends a moment after it.
		during(func() { a.hasNoLease(ctx, pool, eventLimit) }, "all pods are gone")
	}
}

// hasNoLease waits until a pool has no lease.
func (a *act) hasNoLease(ctx context.Context, pool string, limit time.Duration) {
	eventually(ctx, limit, "no lease in pool "+pool, func(ctx context.Context) {
		left := a.leases(ctx, pool)
		must(len(left) == 0, "there are %s", brief(left))
	})
}

// brief lists leases with their states.
func brief(leases []v1alpha1.IPLease) string {
	var words []string
	for _, l := range leases {
		words = append(words, describe(&l))
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

// describe returns a lease with its state, node and holder, for errors.
func describe(l *v1alpha1.IPLease) string {
	text := fmt.Sprintf("%s %s on %s", l.Name, l.Spec.State, l.Spec.NodeName)
	if l.Spec.Holder != nil {
		text += " of pod " + l.Spec.Holder.Pod
	}
	if l.Spec.Reason != "" {
		text += fmt.Sprintf(" (%s: %q)", l.Spec.Reason, l.Spec.Message)
	}
	return text
}

// boundTo fails unless the lease of the address is Bound to the pod.
func (a *act) boundTo(ctx context.Context, addr netip.Addr, uid string) {
	l := a.lease(ctx, addr)
	must(l.Spec.State == v1alpha1.StateBound && l.Spec.Holder != nil, "%s", describe(l))
	must(l.Spec.Holder.PodUID == uid, "%s, whose UID is %s", describe(l), l.Spec.Holder.PodUID)
}

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

// of returns the writes to the lease of an address up to now, and a channel that is closed at the next write.
func (c *chronicle) of(addr netip.Addr) ([]entry, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := func(e entry) bool { return e.Spec.Address != addr.String() }
	return slices.DeleteFunc(slices.Clone(c.entries), others), c.added
}

// all returns all writes up to now.
func (c *chronicle) all() []entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.entries)
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

// aftermathLimit is the time in which leases and pods must agree after all faults have ended.
const aftermathLimit = 90 * time.Second

// badDay adds the aftermath to a scenario.
func badDay(play func(context.Context, *act)) func(context.Context, *act) {
	return func(ctx context.Context, a *act) {
		play(ctx, a)
		a.aftermath(ctx)
	}
}

// aftermath judges that the leases of the scenario's pool are exactly those of its living pods, and that none is
// left once these pods have ended. So no address was lost, given twice, leaked or left in quarantine.
func (a *act) aftermath(ctx context.Context) {
	eventually(ctx, aftermathLimit, "leases that equal the living holders", a.leasesEqualHolders)
	a.nothingIsLeft(ctx, a.namespace)
	a.story.Say("In the end, each lease belongs to a living pod. After the last pod, no lease is left.")
}

// leasesEqualHolders fails unless each pod runs and has the lease of its address, and there is no other lease.
func (a *act) leasesEqualHolders(ctx context.Context) {
	pods := a.pods(ctx) // before the leases
	check(equal(a.leases(ctx, a.namespace), pods))
}

// equal compares the leases of a pool with the pods that have its addresses.
func equal(leases []v1alpha1.IPLease, pods []corev1.Pod) error {
	addresses := map[string]string{} // by pod UID
	var errs []error
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil || !isReady(p) {
			errs = append(errs, fmt.Errorf("pod %s does not run", p.Name))
		}
		addresses[string(p.UID)] = p.Status.PodIP
	}
	for i := range leases {
		l := &leases[i]
		h := l.Spec.Holder
		if l.Spec.State != v1alpha1.StateBound || h == nil || addresses[h.PodUID] != l.Spec.Address {
			errs = append(errs, fmt.Errorf("no living pod has lease %s", describe(l)))
			continue
		}
		delete(addresses, h.PodUID)
	}
	for uid, addr := range addresses {
		errs = append(errs, fmt.Errorf("pod %s has %q and no lease", uid, addr))
	}
	return errors.Join(errs...)
}
