package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// first is the first spec of the lease that a request is for.
func first(r Request, o Owner) v1alpha1.IPLeaseSpec {
	if r.Holder == (v1alpha1.Holder{}) {
		return Warm(r, o)
	}
	return Bind(r, o)
}

// Warm is the first spec of a lease that is kept ready: nobody holds it.
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

// BindWarm binds a Warm lease of this node. Nobody has spoken for the address
// since it became Warm, so nothing has to be proven of a last holder; that it
// was verified in this session is the caller's knowledge.
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

// ThrowOut sets a Warm lease aside for whose address somebody else speaks.
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

// BindWarm binds a Warm lease as last read; see the transition of that name. A
// lease that is this container's already is returned, since an earlier try has
// succeeded unnoticed. When the answer is lost, the error is ErrUncertain.
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

// ThrowOut sets a Warm lease aside for whose address somebody else speaks.
func (s *Store) ThrowOut(ctx context.Context, l *v1alpha1.IPLease, e Evidence) (*v1alpha1.IPLease, error) {
	return s.Update(ctx, l, ThrowOut(s.o.Clock.Now(), e))
}
