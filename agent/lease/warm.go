// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// first returns the first spec of the lease for a request.
func first(r Request, o Owner) v1alpha1.IPLeaseSpec {
	if r.Holder == (v1alpha1.Holder{}) {
		return Warm(r, o)
	}
	return Bind(r, o)
}

// Warm returns the first spec of a lease that is kept ready. It has no holder.
func Warm(r Request, o Owner) v1alpha1.IPLeaseSpec {
	return v1alpha1.IPLeaseSpec{
		Address:  r.Addr.String(),
		Pool:     r.Pool,
		Parent:   r.Parent,
		State:    v1alpha1.StateWarm,
		Since:    metav1.NewTime(o.Now),
		NodeName: o.Node,
		Session:  o.Session,
	}
}

// BindWarm binds a Warm lease of this node. A Warm lease has no last holder, so nothing needs
// proof. The caller knows that the address was proven in this session.
func BindWarm(r Request, o Owner) Transition {
	return func(old v1alpha1.IPLeaseSpec) (v1alpha1.IPLeaseSpec, error) {
		if old.State != v1alpha1.StateWarm || old.NodeName != o.Node {
			return old, fmt.Errorf("%w: %s", ErrState, describe(&old))
		}
		next := Bind(r, o)
		next.Address, next.Pool = old.Address, old.Pool
		return next, nil
	}
}

// ThrowOut quarantines a Warm lease whose address another host uses.
func ThrowOut(now time.Time, e Evidence) Transition {
	return func(s v1alpha1.IPLeaseSpec) (v1alpha1.IPLeaseSpec, error) {
		if s.State != v1alpha1.StateWarm {
			return s, fmt.Errorf("%w: %s", ErrState, describe(&s))
		}
		enter(&s, v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, conflictMessage(e), now)
		s.Conflict = note(s.Conflict, e, now)
		return s, nil
	}
}

// BindWarm binds a Warm lease as last read; see the transition of that name. If
// the lease is this container's already, an earlier try succeeded, and BindWarm
// returns it. If the answer is lost, the error is ErrUncertain.
func (s *Store) BindWarm(ctx context.Context, warm *v1alpha1.IPLease, r Request) (*v1alpha1.IPLease, error) {
	bound, err := s.Update(ctx, warm, BindWarm(r, s.owner()))
	if !errors.Is(err, ErrNotMine) {
		return bound, err
	}
	present, getErr := s.Get(ctx, warm.Name)
	if getErr == nil && s.heldBy(present, r.Holder.ContainerID, r.Holder.Interface) {
		return present, nil
	}
	return nil, err
}

// ThrowOut quarantines a Warm lease whose address another host uses.
func (s *Store) ThrowOut(ctx context.Context, l *v1alpha1.IPLease, e Evidence) (*v1alpha1.IPLease, error) {
	return s.Update(ctx, l, ThrowOut(s.o.Clock.Now(), e))
}
