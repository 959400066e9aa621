// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

var kept = with(mine, warm)

func TestTransitionsOfWarmLeases(t *testing.T) {
	bind, throwOut := BindWarm(request("c1")), ThrowOut(stranger)
	for _, c := range []struct {
		rule string
		do   Transition
		from spec
		want spec
		err  error
	}{
		{"a Warm lease is bound", bind, kept, boundAnew, nil},
		{"on the parent of its pod", bind, with(kept, func(s *spec) { s.Parent = "ens2" }), boundAnew, nil},
		{"also one of an earlier session, which the caller has verified in this one", bind, with(rebooted, warm), boundAnew, nil},
		{"not one of another node", bind, with(other, warm), spec{}, ErrState},
		{"not one that was thrown out", bind, with(kept, nobody, func(s *spec) { s.State = v1alpha1.StateQuarantined }), spec{}, ErrState},
		{"not one that was bound meanwhile", bind, mine, spec{}, ErrState},

		{"a Warm lease for whose address somebody speaks is set aside, with its MAC", throwOut, kept, with(kept, func(s *spec) {
			s.State, s.Reason, s.Since = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, metav1.NewTime(now)
			s.Message, s.Conflict = "0a:00:00:00:00:09 uses the address too (probe)", conflict
		}), nil},
		{"a Bound one is not", throwOut, mine, spec{}, ErrState},
		{"nor one that waits for proof", throwOut, quarantined, spec{}, ErrState},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, err := c.do(*c.from.DeepCopy(), me)
			check.Must(t, errors.Is(err, c.err), "got %v, want %v", err, c.err)
			if c.err == nil {
				check.Same(t, got, c.want, "the value")
			}
		})
	}
}

func TestARequestWithoutAHolderIsKeptReady(t *testing.T) {
	s, _ := faulty(t, interceptor.Funcs{})
	r := request("c1")
	r.Holder = v1alpha1.Holder{}
	l := check.Value(s.Create(t.Context(), r))(t)
	check.Same(t, l.Spec, with(kept, func(s *spec) { s.Since = metav1.NewTime(now) }), "the value")
}

func TestBindingAWarmLeaseIsOneWrite(t *testing.T) {
	writes := map[string]int{}
	s, _ := faulty(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			writes["create"]++
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			writes["update"]++
			return c.Update(ctx, o, opts...)
		},
	}, leaseOf(kept, "u"))
	l := check.Value(s.Get(t.Context(), "10.0.0.5"))(t)
	bound, err := s.BindWarm(t.Context(), l, request("c1"))
	check.Must(t, err == nil && bound.UID == "u" && bound.Spec.State == v1alpha1.StateBound, "got %+v, %v", bound, err)
	check.Same(t, writes, map[string]int{"update": 1}, "the value")
}

func TestAWarmLeaseThatIsInOtherHandsIsNotBound(t *testing.T) {
	for rule, c := range map[string]struct {
		now  spec
		want error
	}{
		"thrown out":                              {with(kept, func(s *spec) { s.State = v1alpha1.StateQuarantined }), ErrNotMine},
		"bound to another container":              {mine, ErrNotMine},
		"bound to this one, unnoticed":            {with(mine, func(s *spec) { s.Holder.ContainerID = "c1" }), nil},
		"remarked on, and Warm as it was":         {with(kept, func(s *spec) { s.Message = "x" }), nil},
		"bound to this one in an earlier session": {with(rebooted, func(s *spec) { s.Holder.ContainerID = "c1" }), ErrNotMine},
	} {
		t.Run(rule, func(t *testing.T) {
			s, _ := faulty(t, interceptor.Funcs{}, leaseOf(kept, "u"))
			l := check.Value(s.Get(t.Context(), "10.0.0.5"))(t)
			changed := l.DeepCopy()
			changed.Spec = c.now
			check.OK(t, s.o.Client.Update(t.Context(), changed))
			bound, err := s.BindWarm(t.Context(), l, request("c1"))
			check.Must(t, errors.Is(err, c.want), "got %v, want %v", err, c.want)
			if err == nil && bound.Spec.Holder.ContainerID != "c1" {
				t.Errorf("bound to %+v", bound.Spec.Holder)
			}
		})
	}
}

func TestABindingWithoutAnAnswerIsUncertain(t *testing.T) {
	s, _ := faulty(t, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := c.Update(ctx, o, opts...); err != nil {
				return err
			}
			return &netOpError{}
		},
	}, leaseOf(kept, "u"))
	_, err := s.BindWarm(t.Context(), check.Value(s.Get(t.Context(), "10.0.0.5"))(t), request("c1"))
	check.That(t, errors.Is(err, ErrUncertain) && IsUnavailable(err), "got %v", err)
}
