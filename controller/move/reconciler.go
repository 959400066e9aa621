// SPDX-License-Identifier: Apache-2.0

// Package move holds the addresses of the records of another IPAM for the pods that have them, and reports
// what has become of them. The agents adopt the pods.
package move

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/owner"
)

// interval is the shortest time between two looks at a move, whose status is long.
const interval = time.Second

// Reconciler creates the holds of moves, and publishes their status.
type Reconciler struct {
	Client client.Client
	// Live reads from the API server, not from the cache.
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.PassiveClock

	// next has the earliest time of the next look at each move. Looks do not run at the same time.
	next map[string]time.Time
	// lacking are the moves whose last look has found that a SpiderReservedIP lacks.
	lacking map[string]bool
	// listed are the last lists of whereabouts' records.
	listed map[string]listing
}

// Reconcile looks at one move. It reads the move past the cache: an old step or status would hold addresses
// again that are given anew.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	now := r.Clock.Now()
	if wait := r.next[request.Name].Sub(now); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	m := &v1alpha1.Move{}
	if err := r.Live.Get(ctx, request.NamespacedName, m); err != nil {
		delete(r.next, request.Name)
		delete(r.lacking, request.Name)
		delete(r.listed, request.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.next[request.Name] = now.Add(interval)
	f := Facts{Move: m, Now: now}
	for _, name := range m.Spec.Pools {
		pool := v1alpha1.IPPool{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, &pool); err == nil {
			f.Pools = append(f.Pools, pool)
		} else if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("read pool %s: %w", name, err)
		}
	}
	var unread error
	f.Lease = func(name string) *v1alpha1.IPLease {
		l := &v1alpha1.IPLease{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: name}, l, client.UnsafeDisableDeepCopy)
		switch {
		case err == nil:
			return l
		case !apierrors.IsNotFound(err):
			unread = fmt.Errorf("read lease %s: %w", name, err)
		}
		return nil
	}
	status, writes := Next(f)
	if unread != nil {
		return ctrl.Result{}, unread
	}
	for _, l := range writes.Holds {
		if err := r.hold(ctx, l); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.giveBack(ctx, writes); err != nil {
		return ctrl.Result{}, err
	}
	status.Conditions = slices.Clone(m.Status.Conditions)
	verdict := r.judge(ctx, m, f.Pools)
	if !r.isSure(m.Name, verdict.Reason) {
		return ctrl.Result{RequeueAfter: interval}, nil
	}
	meta.SetStatusCondition(&status.Conditions, verdict)
	result, err := r.publish(ctx, m, status)
	if err == nil && isJudged(&m.Spec) {
		result.RequeueAfter = cmp.Or(result.RequeueAfter, lookEvery)
	}
	if err == nil && len(writes.Back)+len(writes.Ended) > 0 {
		result.RequeueAfter = interval // a lease without the label wakes nobody, if its write met another
	}
	return result, err
}

// hold creates a lease, with the node of its pod if the record lacks it. The lease has the owner of its pod too, by
// which the next pod of a StatefulSet finds its address. A lease that exists meanwhile stays: the next look reports it.
func (r *Reconciler) hold(ctx context.Context, l *v1alpha1.IPLease) error {
	if h := l.Spec.Holder; h != nil {
		pod := &podview.Pod{}
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: h.Pod}, pod)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read pod %s/%s: %w", h.Namespace, h.Pod, err)
		}
		isHolder := string(pod.UID) == h.PodUID
		if isHolder && l.Spec.NodeName == "" {
			l.Spec.NodeName, l.Spec.Previous.Node = pod.Spec.NodeName, pod.Spec.NodeName
		}
		if ref, ok := owner.Of(pod); ok && isHolder {
			h.OwnerGroup, h.OwnerKind, h.OwnerName = ref.Group, ref.Kind, ref.Name
		}
	}
	if err := r.Client.Create(ctx, l); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("hold %s for move %s: %w", l.Spec.Address, l.Labels[v1alpha1.LabelMove], err)
	}
	return nil
}

// giveBack writes what ends the part of a move that goes back. A lease that has changed meanwhile wakes the move again.
func (r *Reconciler) giveBack(ctx context.Context, w Writes) error {
	for _, l := range w.Back {
		if err := r.Client.Update(ctx, l); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("have the pod of %s given back: %w", l.Spec.Address, err)
		}
	}
	for _, l := range w.Ended {
		asRead := client.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}
		if err := r.Client.Delete(ctx, l, asRead); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("end the hold of %s: %w", l.Spec.Address, err)
		}
	}
	return nil
}

// publish writes the status if it has changed, with an event for each new conflict, and for what others undo.
func (r *Reconciler) publish(ctx context.Context, m *v1alpha1.Move, status v1alpha1.MoveStatus) (ctrl.Result, error) {
	if equality.Semantic.DeepEqual(m.Status, status) {
		return ctrl.Result{}, nil
	}
	known := map[string]bool{}
	for _, a := range m.Status.Addresses {
		known[a.Address] = a.State == v1alpha1.MoveConflict
	}
	was := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReverted)
	m.Status = status
	err := r.Client.Status().Update(ctx, m)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: interval}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("publish the status of move %s: %w", m.Name, err)
	}
	for _, a := range status.Addresses {
		if a.State == v1alpha1.MoveConflict && !known[a.Address] {
			r.Events.Eventf(m, nil, corev1.EventTypeWarning, "MoveConflict", "Hold", "%s: %s", a.Address, a.Reason)
		}
	}
	is := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReverted)
	if is.Status == metav1.ConditionTrue && (was == nil || was.Status != is.Status || was.Message != is.Message) {
		r.Events.Eventf(m, nil, corev1.EventTypeWarning, "MoveReverted", "Judge", "%s: %s", is.Reason, is.Message)
	}
	return ctrl.Result{}, nil
}

// SetupWithManager registers the reconciler. A lease wakes the move that made it, and a pool every move.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.next, r.lacking, r.listed = map[string]time.Time{}, map[string]bool{}, map[string]listing{}
	ofLease := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		name := o.GetLabels()[v1alpha1.LabelMove]
		if name == "" { // an update asks about the lease before it too
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
	ofPool := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
		var moves v1alpha1.MoveList
		_ = mgr.GetClient().List(ctx, &moves, client.UnsafeDisableDeepCopy) // it fails only while the manager ends
		for i := range moves.Items {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: moves.Items[i].Name}})
		}
		return requests
	})
	isLabelled := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelMove] != "" })
	edited := predicate.GenerationChangedPredicate{}
	return ctrl.NewControllerManagedBy(mgr).
		Named("moves").
		For(&v1alpha1.Move{}, builder.WithPredicates(edited)).
		Watches(&v1alpha1.IPLease{}, ofLease, builder.WithPredicates(isLabelled)).
		Watches(&v1alpha1.IPPool{}, ofPool, builder.WithPredicates(edited)).
		Complete(r)
}
