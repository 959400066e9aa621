// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Owner is the knowledge about the owner of a holder. The zero Owner is unknown, and an unknown owner
// ends no retention (R11).
type Owner struct {
	// Need is the owner's need of the holder's pod.
	Need owner.Need
	// Asked is the retention in the annotations of the template now; nil if there is none.
	Asked *v1alpha1.LeaseRetention
	// Unreadable is the fault of these annotations; empty if they are valid.
	Unreadable string
	// Unwatched: no event reports changes of the owner.
	Unwatched bool
}

// Known reports whether the owner could be read.
func (o Owner) Known() bool { return o.Need.Standing != owner.Unknown }

// retentionEnd is the end of a retention. With a zero At the retention has no known end.
type retentionEnd struct {
	At  time.Time
	Why string
}

// endOfRetention returns the end of the retention of a Retained lease. limit is the pool's retention.max; 0 means
// no limit. The retention is over if its end is at or before now.
func endOfRetention(spec *v1alpha1.IPLeaseSpec, o Owner, limit time.Duration, now time.Time) retentionEnd {
	end := byPolicy(spec, o, now)
	if limit <= 0 || spec.Since.IsZero() {
		return end
	}
	capped := spec.Since.Add(limit)
	if end.At.IsZero() || capped.Before(end.At) {
		why := fmt.Sprintf("the pool retains no address longer than %s", limit)
		if !o.Known() || o.Unreadable != "" {
			why = end.Why + "; " + why // an operator can mend this
		}
		return retentionEnd{At: capped, Why: why}
	}
	return end
}

// byPolicy returns the end by the annotations in the owner's template, so a change of them counts at
// once. If the owner is gone, the annotations that the lease recorded count. With every policy, a pod
// that the owner wants keeps its address. A stopped machine does so unless a policy says otherwise.
func byPolicy(spec *v1alpha1.IPLeaseSpec, o Owner, now time.Time) retentionEnd {
	if spec.Holder == nil {
		return retentionEnd{Why: "its owner is not known"}
	}
	switch o.Need.Standing {
	case owner.Unknown, owner.Wanted:
		return retentionEnd{Why: cmp.Or(o.Need.Why, "its owner is not known")}
	}
	isGone := o.Need.Standing == owner.Gone
	if !isGone && o.Unreadable != "" {
		return retentionEnd{Why: o.Unreadable}
	}
	asked := spec.Retention
	if !isGone {
		asked = o.Asked
	}
	switch {
	case o.Need.Standing == owner.Stopped && (asked == nil || asked.Policy == v1alpha1.RetainWhileOwned):
		return retentionEnd{Why: o.Need.Why}
	case asked == nil || asked.Policy == v1alpha1.RetainWhileOwned || asked.Policy == v1alpha1.RetainNone:
		return retentionEnd{At: now, Why: o.Need.Why}
	case asked.Policy == v1alpha1.RetainFor && asked.Duration != nil && !spec.Since.IsZero():
		return retentionEnd{At: spec.Since.Add(asked.Duration.Duration),
			Why: fmt.Sprintf("%s, and the address is kept for %s after its pod", o.Need.Why, asked.Duration.Duration)}
	default:
		return retentionEnd{Why: "the address is kept until an operator deletes the lease"}
	}
}

// A pod has one address of each IP family on an interface. If the next pod of a name has another
// address, because its annotation now names other pools, no pod needs the kept address. Decide
// checks whether that next pod exists. The same applies to the next sandbox of a pod.

// isSettled reports whether a lease belongs to a pod for good. A lease that was taken over is settled
// once the take-over is confirmed.
func isSettled(s *v1alpha1.IPLeaseSpec) bool {
	return s.State == v1alpha1.StateBound && s.Previous == nil && s.Holder != nil
}

// isKeptForPod reports whether a lease is kept for the next sandbox of its pod, and not for a name.
func isKeptForPod(s *v1alpha1.IPLeaseSpec) bool {
	return s.State == v1alpha1.StateRetained && s.Reason == v1alpha1.ReasonSandboxEnded && s.Holder != nil
}

// succeeds reports whether the pod for which kept is retained got l instead.
func succeeds(l, kept *v1alpha1.IPLease) bool {
	if l.Name == kept.Name || l.DeletionTimestamp != nil || !isSettled(&l.Spec) || kept.Spec.Holder == nil {
		return false
	}
	now, before := l.Spec.Holder, kept.Spec.Holder
	if now.Interface != before.Interface || l.Spec.Addr().Is6() != kept.Spec.Addr().Is6() {
		return false
	}
	if isKeptForPod(&kept.Spec) {
		return now.Namespace == before.Namespace && now.Pod == before.Pod && now.PodUID == before.PodUID
	}
	return owner.Same(now, before) && owner.KeepsName(now) && owner.KeepsName(before) && now.OwnerName == before.OwnerName
}

// reservedFor returns the reservation that keeps the address of a lease for another identity than its holder's, or nil.
func reservedFor(ctx context.Context, reader client.Reader, lease *v1alpha1.IPLease) (*v1alpha1.ReservedIP, error) {
	network, addr, err := v1alpha1.ParseLeaseName(lease.Name)
	if err != nil || lease.Spec.Holder == nil {
		return nil, nil //nolint:nilerr // the CRD refuses such a name
	}
	var all v1alpha1.ReservedIPList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list reservations: %w", err)
	}
	return poolset.KeptForAnother(all.Items, network, addr, lease.Spec.Holder), nil
}

// successor returns the successor of a Retained lease in the cache, or nil.
func (r Reader) successor(ctx context.Context, kept *v1alpha1.IPLease) (*v1alpha1.IPLease, error) {
	holder := kept.Spec.Holder
	if holder == nil {
		return nil, nil
	}
	all, err := cache.LeasesOf(ctx, r.Cache, cache.IdentityKey(holder))
	if err != nil {
		return nil, err
	}
	for i := range all {
		if succeeds(&all[i], kept) {
			return &all[i], nil
		}
	}
	return nil, nil
}

// successorNow returns the successor from the API server, or nil if it no longer is one.
func successorNow(ctx context.Context, live client.Reader, f Facts) (*v1alpha1.IPLease, error) {
	now, err := read[v1alpha1.IPLease](ctx, live, "", f.Successor.Name)
	if err != nil || now == nil || !succeeds(now, f.Lease) {
		return nil, err
	}
	return now, nil
}
