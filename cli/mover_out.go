// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/movein"
	"github.com/fenceline/fenceline/internal/poolset"
)

// freesMoved is what frees the addresses of pods that moved out.
var freesMoved = map[v1alpha1.MoveSource]string{
	v1alpha1.MoveWhereabouts: "In place of a DEL, ip-control-loop of whereabouts frees the address of such a pod within seconds of the end of the Pod, " +
		"so see that it runs on each node; what it misses, its reconciler frees, by default at 4:30 UTC.",
	v1alpha1.MoveSpiderpool: "In place of a DEL, the collector of spiderpool-controller frees the address of such a pod within seconds of the end of the Pod, " +
		"so see that it runs; what it misses, its scan frees, by default every 10 minutes.",
}

// draft returns the Move that a move out would store; nil if something blocks it, which is the plan then.
func (m *mover) draft(reserved poolset.Set) *v1alpha1.Move {
	draft, blocks := m.facts.Draft(reserved)
	for i := range m.facts.Pools {
		p := &m.facts.Pools[i]
		for _, name := range draft.Spec.Pools {
			if owner := ownerOf(p); p.Name == name && owner != "" {
				blocks = append(blocks, fmt.Sprintf("%s owns pool %s and would undo an edit, or make the pool anew: have it leave the pool first, without deleting it", owner, name))
			}
		}
	}
	if len(blocks) > 0 {
		m.plan = movein.Plan{Blocks: blocks}
		return nil
	}
	return draft
}

// planOut turns the plan of a move in into that of a move out.
func (m *mover) planOut(of *v1alpha1.Move) {
	for i := range m.plan.Changes {
		c := &m.plan.Changes[i]
		if now := m.configs[c.Namespace+"/"+c.Name]; movein.IsOurs(now) {
			c.Switched = now
		}
	}
	_, more := m.plan.Missed(of)
	for _, d := range more {
		m.plan.Blocks = append(m.plan.Blocks, fmt.Sprintf("definition %s/%s of %s has addresses of the pools already: give it others, or delete it", d.Namespace, d.Name, m.from))
	}
	in := m.facts.RecordsIn
	switch {
	case m.recordsIn == "" && len(in) == 1:
		m.recordsIn = in[0]
	case len(in) > 0 && !slices.Contains(in, m.recordsIn):
		m.plan.Blocks = append(m.plan.Blocks, fmt.Sprintf("whereabouts has records in the namespaces %s: name by --records-in the one of its kubeconfig on the nodes", strings.Join(in, ", ")))
	}
	if m.from == v1alpha1.MoveWhereabouts && m.recordsIn == "" && len(in) == 0 {
		m.plan.Blocks = append(m.plan.Blocks, "whereabouts has no records yet, so their namespace is not known: name it by --records-in (kube-system, unless its kubeconfig on the nodes has another one)")
	}
	m.plan.Blocks = append(m.plan.Blocks, m.plan.Contested(m.leases)...)
	if m.move == nil {
		m.plan.Blocks = append(m.plan.Blocks, m.facts.Twice(m.leases)...)
	}
	m.leaving = m.plan.Leaving(m.facts, m.leases)
	for _, r := range m.leaving {
		if m.move == nil && strings.HasPrefix(r.Hold, movein.Elsewhere) { // a move that has begun keeps such an address until its lease ends
			m.plan.Blocks = append(m.plan.Blocks, fmt.Sprintf("pod %s/%s has %s, and %s. Its next start would ask for a pool that is gone: have it choose another one, and restart it",
				r.Namespace, r.Pod, r.Address, r.Hold))
		}
	}
	if n := len(movein.Left(nil, m.leaving)); n > v1alpha1.MaxMoveRecords {
		m.plan.Blocks = append(m.plan.Blocks, fmt.Sprintf("%d pods have addresses, and a move has at most %d: split the network", n, v1alpha1.MaxMoveRecords))
	}
}

// moveOut moves the network out, from wherever it is.
func (m *mover) moveOut(ctx context.Context) error {
	if m.move == nil && len(m.plan.Blocks) > 0 {
		return m.printPlan()
	}
	if m.move == nil {
		if err := m.tryInSpiderpool(ctx); err != nil {
			return err
		}
		if err := m.begin(ctx, m.drafted.Spec.Pools); err != nil {
			return err
		}
	}
	_, err := m.goBack(ctx)
	return err
}

// finishOut ends a move out, once no address of the pools has a lease.
func (m *mover) finishOut(ctx context.Context) error {
	if m.move == nil {
		return fmt.Errorf("there is no move of %s", m.network)
	}
	if step := m.move.Spec.Step; step != v1alpha1.MoveBack {
		return fmt.Errorf("move %s is at step %s: repeat `%s start` first", m.move.Name, step, m.command())
	}
	if err := m.disable(ctx, true); err != nil {
		return err
	}
	if err := errors.Join(m.read(ctx), m.allPlanned()); err != nil {
		return err
	}
	if n := len(m.leases); n > 0 {
		return fmt.Errorf("move %s is not done: %d addresses are left. Repeat `%s start` once their leases have ended", m.move.Name, n, m.command())
	}
	for _, c := range m.plan.Changes {
		if state := c.StateOf(m.configs[c.Namespace+"/"+c.Name]); state != movein.Before {
			return fmt.Errorf("definition %s/%s is %s: repeat `%s start`", c.Namespace, c.Name, said(state, m.out, m.from), m.command())
		}
	}
	if _, err := m.restrict(ctx, nil); err != nil { // leases have ended since the start
		return err
	}
	return m.end(ctx)
}

// record gives the other IPAM a record of each pod that leaves. It returns these, and those that have left.
func (m *mover) record(ctx context.Context) ([]v1alpha1.MoveRecord, error) {
	if _, more := m.plan.Missed(m.move); len(more) > 0 {
		return nil, fmt.Errorf("something blocks the move meanwhile: %s", strings.Join(m.plan.Blocks, "; "))
	}
	leave := movein.Left(nil, m.leaving)
	if m.from == v1alpha1.MoveSpiderpool {
		if err := m.recordInSpiderpool(ctx, leave); err != nil {
			return nil, err
		}
	} else if err := m.recordInWhereabouts(ctx, leave); err != nil {
		return nil, err
	}
	m.say("%s has records of %d pods", m.from, len(leave))
	if err := m.read(ctx); err != nil {
		return nil, err
	}
	return movein.Left(m.move.Spec.Records, leave), nil
}

func (m *mover) recordInWhereabouts(ctx context.Context, leave []v1alpha1.MoveRecord) error {
	if err := m.allocateAll(ctx, m.recordsIn, m.facts.Allocations(leave), ""); err != nil {
		return err
	}
	for _, r := range leave {
		if err := m.reserveFor(ctx, r); err != nil {
			return fmt.Errorf("reserve %s for pod %s/%s in whereabouts: %w", r.Address, r.Namespace, r.Pod, err)
		}
	}
	return nil
}

// allocateAll adds allocations to the records of ranges. With a mark, they replace those with this mark.
func (m *mover) allocateAll(ctx context.Context, namespace string, all []movein.Records, mark string) error {
	for _, of := range all {
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return m.allocate(ctx, namespace, of, mark) }); err != nil {
			return fmt.Errorf("write the records %s of whereabouts: %w", of.Name, err)
		}
	}
	return nil
}

// allocate adds allocations to the records of a range. One of another pod stays. Records are made without an allocation
// too: ip-control-loop frees no address of a pod while those of one of its ranges are missing. With a mark, the
// allocations are those with this mark.
func (m *mover) allocate(ctx context.Context, namespace string, of movein.Records, mark string) error {
	if err := m.still(ctx); err != nil {
		return err
	}
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(whereaboutsRecords)
	now.SetNamespace(namespace)
	now.SetName(of.Name)
	err := m.c.Get(ctx, client.ObjectKeyFromObject(now), now)
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return err
	}
	all, _, err := unstructured.NestedMap(now.Object, "spec", "allocations")
	if err != nil {
		return err
	}
	if all == nil {
		all = map[string]any{}
	}
	isChanged := mark == ""
	for offset, each := range all {
		one, _ := each.(map[string]any)
		if _, stays := of.Allocations[offset]; mark != "" && one["id"] == mark && !stays {
			delete(all, offset)
			isChanged = true
		}
	}
	for offset, a := range of.Allocations {
		if old, ok := all[offset].(map[string]any); ok && (mark != "" || old["podref"] != a.PodRef || strings.HasPrefix(a.ID, v1alpha1.AdoptedSandbox("", ""))) {
			continue
		}
		all[offset] = map[string]any{"id": a.ID, "podref": a.PodRef, "ifname": a.IfName}
		isChanged = true
	}
	if !isChanged {
		return nil
	}
	if err := unstructured.SetNestedMap(now.Object, map[string]any{"range": of.Range, "allocations": all}, "spec"); err != nil {
		return err
	}
	if isNew {
		return m.c.Create(ctx, now)
	}
	return m.c.Update(ctx, now)
}

// reserveFor makes the reservation by which whereabouts compares ranges that overlap.
func (m *mover) reserveFor(ctx context.Context, r v1alpha1.MoveRecord) error {
	if err := m.still(ctx); err != nil {
		return err
	}
	podRef := r.Namespace + "/" + r.Pod
	one := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"podref": podRef, "ifname": r.Interface}}}
	one.SetGroupVersionKind(reservations)
	one.SetNamespace(m.recordsIn)
	one.SetName(movein.ReservationName(r.Address))
	err := m.c.Create(ctx, one)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := m.c.Get(ctx, client.ObjectKeyFromObject(one), one); err != nil {
		return err
	}
	if other, _, _ := unstructured.NestedString(one.Object, "spec", "podref"); other != podRef {
		return fmt.Errorf("it is reserved for pod %s: delete this %s if that pod has gone, and repeat the command", other, reservations.Kind)
	}
	return nil
}

// printPlan prints what a move out would do. The error is errBlocked if something blocks it.
func (m *mover) printPlan() error {
	answer := struct {
		movein.Plan
		// Records are all leases of the pools.
		Records []v1alpha1.MoveRecord `json:"records"`
	}{m.plan, m.leaving}
	err := m.s.print(answer, func(w paper) {
		fmt.Fprintf(w, "Network %s moves to %s. Addresses: %d, of which move: %d.\n", m.network, m.from, len(m.leaving), len(movein.Left(nil, m.leaving)))
		for _, pool := range m.becoming {
			text, _ := json.Marshal(pool.Spec)
			fmt.Fprintf(w, "SpiderIPPool %s will be:\n%s\n", pool.Name, text)
		}
		for _, c := range m.plan.Changes {
			fmt.Fprintf(w, "Definition %s/%s will be:\n%s\n", c.Namespace, c.Name, c.Before)
		}
		writeNotes(w, m.plan)
		writeRecords(w, m.leaving, "moves")
	})
	if err == nil && len(m.plan.Blocks) > 0 {
		err = errBlocked
	}
	return err
}
