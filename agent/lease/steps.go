// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// TakeOver binds a lease that is kept for the request's pod; see the transition of that name.
func (s *Store) TakeOver(ctx context.Context, old *v1alpha1.IPLease, r Request) (*v1alpha1.IPLease, error) {
	return s.bind(ctx, old, r, TakeOver(r))
}

// TakeProven takes over a lease as last read, whose last holder is proven. If the answer is lost, the error is
// ErrUncertain.
func (s *Store) TakeProven(ctx context.Context, old *v1alpha1.IPLease, r Request) (*v1alpha1.IPLease, error) {
	return s.bind(ctx, old, r, TakeProven(r))
}

// BindWarm binds a Warm lease as last read. If the answer is lost, the error is ErrUncertain.
func (s *Store) BindWarm(ctx context.Context, warm *v1alpha1.IPLease, r Request) (*v1alpha1.IPLease, error) {
	return s.bind(ctx, warm, r, BindWarm(r))
}

// bind binds a lease. If it is this container's already, an earlier try succeeded.
func (s *Store) bind(ctx context.Context, old *v1alpha1.IPLease, r Request, t Transition) (*v1alpha1.IPLease, error) {
	bound, err := s.Update(ctx, old, t)
	if !errors.Is(err, ErrNotMine) {
		return bound, err
	}
	present, getErr := s.Get(ctx, old.Name)
	if getErr == nil && s.heldBy(present, r.Holder.ContainerID, r.Holder.Interface) {
		return present, nil
	}
	return nil, err
}

// Settle writes a finding to a Quarantined lease. It returns nil if the address was freed.
func (s *Store) Settle(ctx context.Context, l *v1alpha1.IPLease, f Finding, e Evidence) (*v1alpha1.IPLease, error) {
	now := s.o.Clock.Now()
	what, _, err := Settle(*l.Spec.DeepCopy(), f, e, now)
	if err != nil {
		return nil, fmt.Errorf("lease %s: %w", l.Name, err)
	}
	if what == Free {
		return nil, s.Delete(ctx, l)
	}
	return s.Update(ctx, l, func(spec v1alpha1.IPLeaseSpec, _ Owner) (v1alpha1.IPLeaseSpec, error) {
		_, next, err := Settle(spec, f, e, now)
		return next, err
	})
}

// OfIdentity returns the leases of all pods of a holder's name or virtual machine, in any state.
// They are static addresses or those of an older sandbox. It reads past any cache.
func (s *Store) OfIdentity(ctx context.Context, who *v1alpha1.Holder) ([]v1alpha1.IPLease, error) {
	var list v1alpha1.IPLeaseList
	err := s.o.Reader.List(ctx, &list, client.MatchingFields{"spec.holder.namespace": who.Namespace})
	if err := s.counted("list", err); err != nil {
		return nil, fmt.Errorf("list leases of namespace %s: %w", who.Namespace, err)
	}
	var own []v1alpha1.IPLease
	for _, l := range list.Items {
		if h := l.Spec.Holder; h != nil && h.Namespace == who.Namespace && (owner.Same(h, who) || h.Pod == who.Pod) {
			own = append(own, l)
		}
	}
	return own, nil
}

// InNamespace returns the leases of a pool whose holders are pods of a namespace, in any state. It
// reads past any cache: the result has each lease that was written before the call.
func (s *Store) InNamespace(ctx context.Context, pool, namespace string) ([]v1alpha1.IPLease, error) {
	var list v1alpha1.IPLeaseList
	err := s.o.Reader.List(ctx, &list, client.MatchingFields{"spec.pool": pool, "spec.holder.namespace": namespace})
	if err := s.counted("list", err); err != nil {
		return nil, fmt.Errorf("list leases of pool %s and namespace %s: %w", pool, namespace, err)
	}
	return list.Items, nil
}

// TakenIn returns the addresses of a pool that have a lease in any state, at one
// moment after the call. Only names are transferred.
func (s *Store) TakenIn(ctx context.Context, pool string) (map[netip.Addr]struct{}, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("IPLeaseList"))
	if err := s.counted("list", s.o.Reader.List(ctx, &list, client.MatchingFields{"spec.pool": pool})); err != nil {
		return nil, fmt.Errorf("list leases of pool %s: %w", pool, err)
	}
	taken := make(map[netip.Addr]struct{}, len(list.Items))
	for _, item := range list.Items {
		_, addr, err := v1alpha1.ParseLeaseName(item.Name)
		if err != nil {
			return nil, fmt.Errorf("list leases of pool %s: %w", pool, err)
		}
		taken[addr] = struct{}{}
	}
	return taken, nil
}
