package reclaim

import (
	"context"
	"fmt"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
)

// A pod has one address of a family on an interface. Where the next pod of a name
// has got another one, since its annotation names other pools now, nobody comes
// for the one before. Whether that pod is there Decide asks.

// isSettled tells whether a lease is a StatefulSet pod's for good: one that was
// taken over is so once that is confirmed.
func isSettled(s *v1alpha1.IPLeaseSpec) bool {
	return s.State == v1alpha1.StateBound && s.Previous == nil && s.Holder != nil && s.Holder.OwnerKind == "StatefulSet"
}

// succeeds tells whether the next pod of the name of kept's holder has l instead.
func succeeds(l, kept *v1alpha1.IPLease) bool {
	if l.Name == kept.Name || l.DeletionTimestamp != nil || !isSettled(&l.Spec) || kept.Spec.Holder == nil {
		return false
	}
	now, before := l.Spec.Holder, kept.Spec.Holder
	return now.Namespace == before.Namespace && now.Pod == before.Pod && now.Interface == before.Interface &&
		now.OwnerKind == before.OwnerKind && now.OwnerName == before.OwnerName && isIPv6(l) == isIPv6(kept)
}

func isIPv6(l *v1alpha1.IPLease) bool {
	addr, err := netip.ParseAddr(l.Spec.Address)
	return err == nil && addr.Is6()
}

// successor asks the cache which lease succeeds a Retained one.
func (r *Reconciler) successor(ctx context.Context, kept *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	holder := kept.Spec.Holder
	if holder == nil {
		return nil, nil
	}
	var all v1alpha1.IPLeaseList
	err := r.Client.List(ctx, &all, client.UnsafeDisableDeepCopy,
		client.MatchingFields{cache.LeasesByPod: cache.PodKey(holder.Namespace, holder.Pod)})
	if err != nil {
		return nil, fmt.Errorf("list leases of pod %s/%s: %w", holder.Namespace, holder.Pod, err)
	}
	for i := range all.Items {
		if succeeds(&all.Items[i], kept) {
			return &all.Items[i], nil
		}
	}
	return nil, nil
}

// successorNow asks the API server whether that is still so.
func successorNow(ctx context.Context, l live, f Facts) (*v1alpha1.IPLease, error) {
	now, err := l.lease(ctx, f.Successor.Name)
	if err != nil || now == nil || !succeeds(now, f.Lease) {
		return nil, err
	}
	return now, nil
}

// successions passes leases that have become a StatefulSet pod's.
func successions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isSettled(&e.Object.(*v1alpha1.IPLease).Spec) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !isSettled(&e.ObjectOld.(*v1alpha1.IPLease).Spec) && isSettled(&e.ObjectNew.(*v1alpha1.IPLease).Spec)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
