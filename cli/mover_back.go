// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
)

// back undoes a move, from wherever it is.
//
// It goes back by the frozen definitions: after the pause no ADD of either IPAM is under way, so what is read then is
// what the other IPAM has to exclude. A disabled pool alone would not do, since it still serves kept addresses.
func (m *mover) back(ctx context.Context) error {
	if m.move == nil {
		return fmt.Errorf("there is no move of %s", m.network)
	}
	if err := m.allPlanned(); err != nil {
		return err
	}
	if m.move.Spec.Step != v1alpha1.MoveBack { // a start that still runs ends here
		if err := m.advance(ctx, v1alpha1.MoveFreeze, asItIs, v1alpha1.MoveFreeze, v1alpha1.MoveAdopt, v1alpha1.MoveOpen); err != nil {
			return err
		}
	}
	if err := m.disable(ctx, true); err != nil {
		return err
	}
	for _, c := range m.plan.Changes {
		if err := m.define(ctx, c, c.Frozen); err != nil {
			return err
		}
	}
	if err := pause(ctx, m.settle); err != nil {
		return err
	}
	if err := m.read(ctx); err != nil {
		return err
	}
	// A record that is not read, since its agent is away, counts as lost: its pod stays with Fenceline.
	err := m.advance(ctx, v1alpha1.MoveBack, func(s *v1alpha1.MoveSpec) { s.Records = m.plan.Unrecorded(s.Records) },
		v1alpha1.MoveFreeze, v1alpha1.MoveBack)
	if err != nil {
		return err
	}
	if _, err := m.giveRest(ctx); err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, adoptedIn, true, func(ctx context.Context) (bool, error) {
		err := m.readLeases(ctx)
		goBack, _ := movein.Split(m.move, m.leases)
		return len(goBack) == 0, err
	})
	if err != nil && (!wait.Interrupted(err) || ctx.Err() != nil) {
		return err
	}
	if err := m.endRetained(ctx); err != nil {
		return err
	}
	failed, err := m.giveRest(ctx)
	if err != nil {
		return err
	}
	if m.reportLeft(failed) > 0 {
		return nil
	}
	for _, name := range m.move.Spec.Pools {
		if err := m.c.Delete(ctx, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pool %s: %w", name, err)
		}
	}
	if err := m.c.Delete(ctx, m.move, client.Preconditions{UID: &m.move.UID}); err != nil {
		return fmt.Errorf("delete move %s: %w", m.move.Name, err)
	}
	m.say("Network %s is as before the move.", m.network)
	return nil
}

// giveRest has the other IPAM give all addresses but those that Fenceline has given. Where no agent answers, the files of
// the move stay, so host-local gives fewer: giveRest returns these nodes as clauses.
func (m *mover) giveRest(ctx context.Context) (failed []string, err error) {
	if err := m.read(ctx); err != nil {
		return nil, err
	}
	if err := m.allPlanned(); err != nil {
		return nil, err
	}
	_, given := movein.Split(m.move, m.leases)
	var ends []netip.Addr
	for _, a := range movein.AddressesOf(given) {
		ends = append(ends, a, a)
	}
	if failed, err = m.writeFiles(ctx, ends); err != nil {
		return nil, err
	}
	for _, c := range m.plan.Changes {
		config, err := c.Returned(movein.AddressesOf(given))
		if err != nil {
			return nil, fmt.Errorf("definition %s/%s: %w", c.Namespace, c.Name, err)
		}
		if err := m.define(ctx, c, config); err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// endRetained deletes the leases that are kept for a name or for the next sandbox of a pod: they have no speaker, and
// that next sandbox asks the other IPAM.
func (m *mover) endRetained(ctx context.Context) error {
	for i := range m.leases {
		l := &m.leases[i]
		if l.Spec.State != v1alpha1.StateRetained {
			continue
		}
		err := m.c.Delete(ctx, l, client.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("end the kept lease of %s: %w", l.Spec.Address, err)
		}
	}
	return nil
}

// reportLeft tells which leases are left, and on which nodes files of the move, and what ends them. It returns their
// number.
func (m *mover) reportLeft(failed []string) int {
	goBack, given := movein.Split(m.move, m.leases)
	list := func(leases []v1alpha1.IPLease) {
		for i := range leases {
			l := &leases[i]
			m.say("  %s on node %s: %s%s %s", l.Spec.Address, cmp.Or(l.Spec.NodeName, "(none)"), l.Spec.State, ofHolder(l), l.Spec.Message)
		}
	}
	if len(goBack) > 0 {
		m.say("Not given back yet, since the agent of the node or the controller is away. Their pods run on; repeat the command:")
		list(goBack)
	}
	if len(given) > 0 {
		m.say("These addresses stay with Fenceline, and %s excludes them, until their leases end. Restart their pods, and repeat the command:", m.from)
		list(given)
	}
	if len(failed) > 0 {
		m.say("The files of the move are left on some nodes, and %s gives none of their addresses there: %s. Mend it, or delete the Node if its machine is gone for good, and repeat the command.", m.from, strings.Join(failed, "; "))
	}
	return len(goBack) + len(given) + len(failed)
}
