// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// belongs finds the application of the pod if a rule may need it. One ADD reads it once.
func (a *adding) belongs(ctx context.Context, s *surroundings) error {
	ofApplication := func(p v1alpha1.IPPool) bool {
		return p.Spec.Application != nil && p.Spec.Application.Namespace == a.Pod.Namespace
	}
	if !ipam.AsksForSubnets(s.request.Pod, s.request.Subnets) && !slices.ContainsFunc(s.pools, ofApplication) {
		return nil
	}
	if a.queued.application == nil {
		ref, err := a.Owners.Application(ctx, a.Pod)
		if err != nil {
			return fmt.Errorf("find the application of pod %s/%s: %w", a.Pod.Namespace, a.Pod.Name, err)
		}
		a.queued.application = &v1alpha1.Application{APIGroup: ref.Group, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	}
	s.request.Application = *a.queued.application
	return nil
}

// isUnmade reports whether an error means that the controller has not made a pool yet.
func isUnmade(err error) bool {
	_, ok := errors.AsType[*ipam.PoolAwaitedError](err)
	return ok
}
