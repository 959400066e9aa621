// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
)

// heldIn bounds the wait for the controller, adoptedIn the wait for the agents.
const heldIn, adoptedIn = 30 * time.Second, 30 * time.Second

// mostReadings is how often the records are read after the freeze, while some have no pod yet: Multus names the address
// of a pod only after its ADD.
const mostReadings = 3

// start carries the move out up to the step Open, from wherever it is.
func (m *mover) start(ctx context.Context) error {
	if len(m.plan.Blocks) > 0 && (m.move == nil || m.move.Spec.Step == v1alpha1.MoveFreeze) {
		writePlan(paper{printable: printable{m.s.Out}, colour: m.s.colour}, m.network, m.plan)
		return errBlocked
	}
	if m.move == nil {
		var pools []string
		for _, pool := range m.plan.Pools {
			pools = append(pools, pool.Name)
		}
		if err := m.begin(ctx, pools); err != nil {
			return err
		}
	}
	if err := m.allPlanned(); err != nil {
		return err
	}
	if m.move.Spec.Step == v1alpha1.MoveBack {
		return fmt.Errorf("move %s goes back: finish that first with `kubectl fenceline move-in back`", m.move.Name)
	}
	if strangers := m.plan.Strangers; len(strangers) > 0 {
		return fmt.Errorf("%s. Mend it and repeat the command, or go back", strings.Join(strangers, "; "))
	}
	if _, more := m.plan.Missed(m.move); len(more) > 0 { // made since the begin
		step := m.move.Spec.Step
		if err := m.advance(ctx, step, func(s *v1alpha1.MoveSpec) { s.Definitions = append(s.Definitions, more...) }, step); err != nil {
			return err
		}
	}
	if m.move.Spec.Step == v1alpha1.MoveAdopt && m.isReverted() { // the other IPAM may have given addresses since
		if err := m.advance(ctx, v1alpha1.MoveFreeze, asItIs, v1alpha1.MoveAdopt); err != nil {
			return err
		}
	}
	if m.move.Spec.Step == v1alpha1.MoveFreeze {
		if err := m.freeze(ctx); err != nil {
			return err
		}
	}
	if m.move.Spec.Step == v1alpha1.MoveAdopt {
		if err := m.hold(ctx); err != nil {
			return err
		}
		if err := m.advance(ctx, v1alpha1.MoveOpen, asItIs, v1alpha1.MoveAdopt); err != nil {
			return err
		}
	}
	// Since the freeze, or the last start, files may lack: of nodes that joined or lost theirs, of pods that ended, and of
	// definitions that were made. Somebody may have removed a SpiderReservedIP.
	if err := m.freezeAll(ctx); err != nil {
		return err
	}
	if err := m.disable(ctx, false); err != nil {
		return err
	}
	for _, c := range m.plan.Changes {
		if err := m.define(ctx, c, c.Switched); err != nil {
			return err
		}
	}
	return m.adopt(ctx)
}

// isReverted reports whether others have made a definition anew as it was before the move, or removed the
// SpiderReservedIPs. Files of host-local may lack for other reasons.
func (m *mover) isReverted() bool {
	return m.from == v1alpha1.MoveSpiderpool && len(m.plan.Holes()) > 0 || slices.ContainsFunc(m.plan.Changes, func(c movein.Change) bool {
		state := c.StateOf(m.configs[c.Namespace+"/"+c.Name])
		return state == movein.Before || state == movein.Returning
	})
}

// begin stores the Move of pools.
func (m *mover) begin(ctx context.Context, pools []string) error {
	m.move = &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: movein.MoveName(m.network)}, Spec: v1alpha1.MoveSpec{
		From: m.from, Out: m.out, Network: m.network, Pools: pools, Holder: m.who, Step: v1alpha1.MoveFreeze, Definitions: m.plan.Definitions(),
	}}
	if err := m.c.Create(ctx, m.move); err != nil {
		return fmt.Errorf("store the move: %w", err)
	}
	m.say("move %s is stored", m.move.Name)
	for _, note := range m.plan.Notes { // a person may start without a look at the plan
		m.say("Note: %s", note)
	}
	return nil
}

// freeze makes the pools, has the other IPAM give no address of theirs, and reads its records again.
func (m *mover) freeze(ctx context.Context) error {
	for _, pool := range m.plan.Pools {
		err := m.c.Create(ctx, pool.DeepCopy())
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make pool %s: %w", pool.Name, err)
		}
	}
	for _, c := range m.plan.Changes {
		if err := m.define(ctx, c, c.Frozen); err != nil {
			return err
		}
	}
	if err := m.freezeAll(ctx); err != nil {
		return err
	}
	for range mostReadings {
		if err := pause(ctx, m.settle); err != nil {
			return err
		}
		if err := m.read(ctx); err != nil {
			return err
		}
		if !m.plan.HasUnknown() {
			break
		}
	}
	if len(m.plan.Blocks) > 0 {
		return fmt.Errorf("something blocks the move meanwhile: %s. Mend it and repeat the command, or go back", strings.Join(m.plan.Blocks, "; "))
	}
	return m.advance(ctx, v1alpha1.MoveAdopt, func(s *v1alpha1.MoveSpec) { s.Records = m.plan.Records }, v1alpha1.MoveFreeze)
}

// hold waits until each address of the records has a lease.
func (m *mover) hold(ctx context.Context) error {
	err := m.await(ctx, heldIn, func(s *v1alpha1.MoveStatus) bool { return len(s.Addresses) == len(m.move.Spec.Records) })
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("the controller has not held the addresses of move %s within %s: see that it runs, and repeat the command; pods that start on the network wait meanwhile, so go back if that takes long", m.move.Name, heldIn)
	}
	return err
}

// adopt reads the records once more, for addresses that the other IPAM gave late, and waits for the agents.
func (m *mover) adopt(ctx context.Context) error {
	if err := m.read(ctx); err != nil {
		return err
	}
	if added := movein.Added(m.move, m.plan.Records, m.leases); len(added) > 0 {
		m.say("%s has given %d addresses meanwhile", m.from, len(added))
		err := m.advance(ctx, v1alpha1.MoveOpen, func(s *v1alpha1.MoveSpec) {
			s.Records = movein.With(s.Records, movein.Added(m.move, m.plan.Records, m.leases))
		}, v1alpha1.MoveOpen)
		if err != nil {
			return err
		}
	}
	wanted := 0
	for _, r := range m.move.Spec.Records {
		if r.Hold == "" {
			wanted++
		}
	}
	err := m.await(ctx, adoptedIn, func(s *v1alpha1.MoveStatus) bool { return int(s.Adopted+s.Conflicts+s.Ended) >= wanted })
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil // the status says what is left
	}
	return err
}
