// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/controller/metrics"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

const (
	// interval and longest are the shortest and the longest pause after a pass. In between, the
	// pause is share times as long as the pass.
	interval, longest, share = 100 * time.Millisecond, time.Second, 10
	// countsInterval is the shortest time between two writes of a status of which only counts change.
	countsInterval = time.Second
	// writers is the number of pools that are written at the same time.
	writers = 8
	// lookAgain is the time after which an unwatched application without pods is looked for again.
	lookAgain = time.Minute
	// Settle is the time after which every ADD that does not know of a withdrawal has ended: the
	// longest try of an ADD (20 s), and the delay of a watch.
	Settle = time.Minute
)

// Reconciler makes, resizes and deletes the pools of all IPSubnets together. Its passes do not run at the
// same time.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server itself.
	Live    client.Reader
	Owners  owner.Asker
	Events  events.EventRecorder
	Metrics *metrics.Metrics
	Clock   clock.PassiveClock
	// Settle is the time between the withdrawal of an address and its return to the IPSubnet.
	Settle time.Duration
	// V4 and V6 are the default IPSubnets. If both are empty, those with spec.default count.
	V4, V6 []string

	memory memory
	// above has the applications of pods by the UID of their direct owner.
	above map[types.UID]owner.Ref
	// answers are those about the owners of other projects.
	answers answers
	// next is the earliest time of the next pass.
	next time.Time
}

// Reconcile is one pass.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	begin := r.Clock.Now()
	if wait := r.next.Sub(begin); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	again, err := r.pass(ctx)
	r.next = r.Clock.Now().Add(min(max(interval, share*r.Clock.Since(begin)), longest))
	if isStale(err) {
		return ctrl.Result{RequeueAfter: interval}, nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// pass reads the cluster, plans and writes. It returns the time of the next pass, or 0 if no other pass
// is needed before something changes.
func (r *Reconciler) pass(ctx context.Context) (again time.Duration, err error) {
	f, err := r.facts(ctx)
	if err != nil {
		return 0, err
	}
	if len(f.Subnets) == 0 && !slices.ContainsFunc(f.Pools, isMade) {
		return 0, nil
	}
	p := MakePlan(f)
	if p.Gives() {
		// Only live reads decide which addresses are given out. The pools are read after the
		// IPSubnets. So a pool of an earlier leader is among the pools or in status.carving, or
		// that leader has yet to change the IPSubnet. The write below detects that.
		if err := f.readRecords(ctx, r.Live); err != nil {
			return 0, err
		}
		p = MakePlan(f)
	}
	if p.Gives() {
		if err := r.publish(ctx, p, true); err != nil {
			return 0, err
		}
	}
	if err := r.write(ctx, p); err != nil {
		return 0, err
	}
	r.tell(p)
	if p.Gives() {
		// The pools' own events start the pass that publishes the counts.
		return countsInterval, nil
	}
	if err := r.publish(ctx, p, false); err != nil {
		return 0, err
	}
	return r.nextPass(f, p), nil
}

func isMade(pool v1alpha1.IPPool) bool { return pool.Spec.IPSubnet != "" }

// nextPass returns the time until the plan may change without an event.
func (r *Reconciler) nextPass(f Facts, p Plan) time.Duration {
	var again time.Duration
	sooner := func(d time.Duration) {
		if again == 0 || d < again {
			again = d
		}
	}
	if p.Settling || len(p.Carving) > 0 {
		sooner(max(interval, r.Settle/4))
	}
	if r.memory.unpublished {
		sooner(countsInterval)
	}
	for _, exists := range f.Unsure {
		if exists {
			sooner(lookAgain)
		}
	}
	for i := range f.Applications {
		switch err := f.Applications[i].Uncounted; {
		case isPassing(err):
			sooner(askAgain)
		case err != nil:
			sooner(lookAgain)
		}
	}
	return again
}

// publish writes the statuses that have changed. all also publishes counts that could wait.
func (r *Reconciler) publish(ctx context.Context, p Plan, all bool) error {
	now := r.Clock.Now()
	r.memory.unpublished = false
	for name, g := range p.Subnets {
		status := p.Status(name, metav1.NewTime(now))
		r.Metrics.SetSubnet(name, status, p.unservedBy(name))
		if equality.Semantic.DeepEqual(g.Status, status) {
			continue
		}
		if !all && !isUrgent(g.Status, status) && now.Sub(r.memory.published[name]) < countsInterval {
			r.memory.unpublished = true
			continue
		}
		old, subnet := g.Status, g.DeepCopy()
		subnet.Status = status
		if err := r.Client.Status().Update(ctx, subnet); err != nil {
			return fmt.Errorf("publish status of IPSubnet %s: %w", name, err)
		}
		r.memory.published[name] = now
		for _, e := range condition.Events(old.Conditions, status.Conditions, reasonDeleting) {
			r.Events.Eventf(subnet, nil, e.Type, e.Reason, "Publish", "%s", e.Note)
		}
	}
	r.memory.forget(p, r.Metrics.ForgetSubnet)
	return nil
}

// isUrgent reports whether a person or an ADD waits for the change.
func isUrgent(was, is v1alpha1.IPSubnetStatus) bool {
	return was.ObservedGeneration != is.ObservedGeneration || !equality.Semantic.DeepEqual(was.Unserved, is.Unserved) ||
		slices.ContainsFunc(is.Conditions, func(c metav1.Condition) bool { return condition.HasChanged(was.Conditions, c) })
}

// write makes, resizes and deletes pools. The failure of one does not stop the others.
func (r *Reconciler) write(ctx context.Context, p Plan) error {
	var writes []func() error
	for i := range p.Make {
		writes = append(writes, func() error { return r.make(ctx, p.Make[i]) })
	}
	for _, resize := range p.Resize {
		writes = append(writes, func() error { return r.resize(ctx, resize) })
	}
	for _, pool := range p.Delete {
		writes = append(writes, func() error { return r.remove(ctx, pool) })
	}
	errs := make([]error, len(writes))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, write := range writes {
		group.Go(func() error { errs[i] = write(); return nil })
	}
	_ = group.Wait() // the errors are in errs
	return failureOf(errs)
}

// failureOf returns the failures of writes. A stale object counts only if nothing else failed, so
// that it does not hide another failure.
func failureOf(errs []error) error {
	var stale error
	var others []error
	for _, err := range errs {
		if isStale(err) {
			stale = err
		} else {
			others = append(others, err)
		}
	}
	return cmp.Or(errors.Join(others...), stale)
}

// isStale reports whether an object has changed since it was read.
func isStale(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

func (r *Reconciler) make(ctx context.Context, m Make) error {
	pool := &m.Pool
	if err := r.Client.Create(ctx, pool); err != nil {
		return fmt.Errorf("make pool %s: %w", pool.Name, err)
	}
	r.Events.Eventf(r.object(m.Ref), pool, corev1.EventTypeNormal, "PoolMade", "Make",
		"pool %s has %s of IPSubnet %s for interface %s", pool.Name, condition.Few(pool.Spec.IPs, ", "), pool.Spec.IPSubnet, pool.Spec.Application.Interface)
	return nil
}

// resize writes a pool. It gives addresses back only if no lease has one of them.
func (r *Reconciler) resize(ctx context.Context, resize Resize) error {
	pool := resize.Pool
	if resize.Released.Len() > 0 {
		leased, err := r.leasedLive(ctx, pool)
		if err != nil {
			return err
		}
		if leased.Overlaps(resize.Released) {
			return nil // the cache will show the lease, and the next pass leaves the address in the pool
		}
	}
	if err := r.Client.Update(ctx, pool); err != nil {
		return fmt.Errorf("resize pool %s: %w", pool.Name, err)
	}
	return nil
}

// leasedLive returns the addresses of a pool that have a lease now.
func (r *Reconciler) leasedLive(ctx context.Context, pool *v1alpha1.IPPool) (poolset.Set, error) {
	leases := &metav1.PartialObjectMetadataList{}
	leases.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("IPLeaseList"))
	if err := r.Live.List(ctx, leases, client.MatchingFields{"spec.pool": pool.Name}); err != nil {
		return poolset.Set{}, fmt.Errorf("list leases of pool %s: %w", pool.Name, err)
	}
	var addresses []string
	for i := range leases.Items {
		if _, addr, err := v1alpha1.ParseLeaseName(leases.Items[i].Name); err == nil {
			addresses = append(addresses, addr.String())
		}
	}
	return poolset.Parse(addresses)
}

func (r *Reconciler) remove(ctx context.Context, pool *v1alpha1.IPPool) error {
	err := r.Client.Delete(ctx, pool, client.Preconditions{UID: &pool.UID, ResourceVersion: &pool.ResourceVersion})
	if err != nil {
		return fmt.Errorf("delete pool %s: %w", pool.Name, err)
	}
	return nil
}
