// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
)

// back undoes a move.
func (m *mover) back(ctx context.Context) error {
	if left, err := m.goBack(ctx); left > 0 || err != nil {
		return err
	}
	return m.end(ctx)
}

// goBack takes the way back of a move in, or that of a move out, from wherever it is. It returns the number of addresses
// and nodes that it has to leave as they are.
//
// It goes back by the frozen definitions: after the pause no ADD of either IPAM is under way, so what is read then is
// what the other IPAM has to exclude. A disabled pool alone would not do, since it still serves kept addresses.
func (m *mover) goBack(ctx context.Context) (left int, err error) {
	if m.move == nil {
		return 0, fmt.Errorf("there is no move of %s", m.network)
	}
	if err := m.allPlanned(); err != nil {
		return 0, err
	}
	if err := m.uncontested(); err != nil {
		return 0, err
	}
	if m.out && len(m.plan.Blocks) > 0 {
		return 0, fmt.Errorf("something blocks the move, so nothing was changed: %s. Mend it and repeat the command", strings.Join(m.plan.Blocks, "; "))
	}
	if m.move.Spec.Step != v1alpha1.MoveBack { // a start that still runs ends here
		if err := m.advance(ctx, v1alpha1.MoveFreeze, asItIs, v1alpha1.MoveFreeze, v1alpha1.MoveAdopt, v1alpha1.MoveOpen); err != nil {
			return 0, err
		}
	}
	if err := m.disable(ctx, true); err != nil {
		return 0, err
	}
	if m.from == v1alpha1.MoveSpiderpool { // somebody may have removed its SpiderReservedIPs
		if err := m.freezeAll(ctx); err != nil {
			return 0, err
		}
	}
	for _, c := range m.plan.Changes {
		frozen := c.Frozen
		if m.from == v1alpha1.MoveSpiderpool { // which gives nothing, by its SpiderReservedIPs
			frozen = c.Before
		}
		if err := m.define(ctx, c, frozen); err != nil {
			return 0, err
		}
	}
	if err := pause(ctx, m.settle); err != nil {
		return 0, err
	}
	if err := m.read(ctx); err != nil {
		return 0, err
	}
	if err := m.uncontested(); err != nil {
		return 0, err
	}
	records := m.move.Spec.Records
	if m.out {
		if records, err = m.record(ctx); err != nil {
			return 0, err
		}
	}
	// A record that is not read, since its agent is away, counts as lost: its pod stays with Fenceline.
	err = m.advance(ctx, v1alpha1.MoveBack, func(s *v1alpha1.MoveSpec) { s.Records = m.plan.Unrecorded(records) },
		v1alpha1.MoveFreeze, v1alpha1.MoveBack)
	if err != nil {
		return 0, err
	}
	if _, err := m.giveRest(ctx); err != nil {
		return 0, err
	}
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, adoptedIn, true, func(ctx context.Context) (_ bool, err error) {
		m.leases, err = m.leasesIn(ctx, m.move)
		goBack, given := movein.Split(m.move, m.leases)
		return len(goBack) == 0 && !slices.ContainsFunc(given, isWarm), err
	})
	if err != nil && (!wait.Interrupted(err) || ctx.Err() != nil) {
		return 0, err
	}
	if err := m.endRetained(ctx); err != nil {
		return 0, err
	}
	failed, err := m.giveRest(ctx)
	if err != nil {
		return 0, err
	}
	return m.reportLeft(failed), nil
}

// uncontested returns an error if the other IPAM would give an address of Fenceline in spite of its exclusion.
func (m *mover) uncontested() error {
	all := m.plan.Contested(m.leases)
	if m.from == v1alpha1.MoveHostLocal || len(all) == 0 { // host-local gives none that has a file
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// end ends a move on whose way back nothing is left.
func (m *mover) end(ctx context.Context) error {
	for _, name := range m.move.Spec.Pools {
		if err := m.c.Delete(ctx, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete pool %s: %w", name, err)
		}
	}
	if err := m.c.Delete(ctx, m.move, client.Preconditions{UID: &m.move.UID}); err != nil {
		return fmt.Errorf("delete move %s: %w", m.move.Name, err)
	}
	if m.out {
		m.say("Network %s has moved to %s. Keep Fenceline on the nodes until the pods that moved have ended: it gets their DELs. %s", m.network, m.from, freesMoved[m.from])
	} else {
		m.say("Network %s is as before the move.", m.network)
	}
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
	kept := m.leases                      // the other IPAM may have freed the address of a pod whose lease is not given back yet
	if m.from == v1alpha1.MoveHostLocal { // whose file of that pod stays
		_, kept = movein.Split(m.move, m.leases)
	}
	var ends []netip.Addr
	for _, a := range movein.AddressesOf(kept) {
		ends = append(ends, a, a)
	}
	if failed, err = m.restrict(ctx, ends); err != nil {
		return nil, err
	}
	for _, c := range m.plan.Changes {
		config, err := c.Returned(movein.AddressesOf(kept))
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

// isWarm reports whether a lease is kept ready on a node, which releases it once the pool is disabled.
func isWarm(l v1alpha1.IPLease) bool { return l.Spec.State == v1alpha1.StateWarm }

// reportLeft tells which leases are left, and on which nodes files of the move, and what ends them. It returns their
// number.
func (m *mover) reportLeft(failed []string) int {
	goBack, given := movein.Split(m.move, m.leases)
	for _, l := range given {
		if isWarm(l) { // it has no pod
			goBack = append(goBack, l)
		}
	}
	given = slices.DeleteFunc(given, isWarm)
	list := func(leases []v1alpha1.IPLease) {
		for i := range leases {
			l := &leases[i]
			m.say("  %s on node %s: %s%s %s", l.Spec.Address, cmp.Or(l.Spec.NodeName, "(none)"), l.Spec.State, ofHolder(l), l.Spec.Message)
		}
	}
	if len(goBack) > 0 {
		m.say("Not given back yet, since the agent of the node or the controller is away, or the pod has a host link and has to be restarted. Their pods run on; repeat the command:")
		list(goBack)
	}
	if m.plan.IsSliced() && len(goBack)+len(given) > 0 {
		m.say("The definitions stay frozen until no lease of Fenceline is left, since whereabouts excludes no address by node_slice_size: pods that start on the network wait.")
	}
	if len(given) > 0 && m.plan.IsSliced() {
		m.say("These addresses stay with Fenceline until their leases end. Restart these pods, and repeat the command:")
		list(given)
	} else if len(given) > 0 {
		m.say("These addresses stay with Fenceline, and %s excludes them, until their leases end. Repeat the command once all nodes are back, and restart the pods that are still here then:", m.from)
		list(given)
	}
	if len(failed) > 0 {
		m.say("The files of the move are left on some nodes, and %s gives none of their addresses there: %s. Mend it, or delete the Node if its machine is gone for good, and repeat the command.", m.from, strings.Join(failed, "; "))
	}
	return len(goBack) + len(given) + len(failed)
}
