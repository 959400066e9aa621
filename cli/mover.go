// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cli/cluster"
	"github.com/fenceline/fenceline/cli/movein"
	"github.com/fenceline/fenceline/internal/poolset"
)

// mover carries a move out, step by step. Each step can be repeated: the stored Move says how far it is.
type mover struct {
	s       *session
	c       *cluster.Cluster
	from    v1alpha1.MoveSource
	network string
	// out: the network moves to the other IPAM. recordsIn is the namespace of whereabouts' records then, or empty.
	out       bool
	recordsIn string
	// who is the holder of the move.
	who string
	// settle is how long an ADD may take that began before a change of a definition or of a pool. An address that comes
	// later is found by the next reading of the records, and by the probe of an ADD.
	settle time.Duration
	move   *v1alpha1.Move
	// drafted is what a move out would store.
	drafted *v1alpha1.Move
	// facts and plan are of the last reading, as if the move had not begun.
	facts movein.Facts
	plan  movein.Plan
	// configs are the definitions of the plan as they are.
	configs map[string]string
	// leases are those in the pools of the move, and leaving is what becomes of them in a move out.
	leases  []v1alpha1.IPLease
	leaving []v1alpha1.MoveRecord
	// becoming are the SpiderIPPools that the pools of a move out become, with the records of the pods that leave.
	becoming []movein.SpiderIPPool
}

// command is the command that carries the move out.
func (m *mover) command() string {
	if m.out {
		return "kubectl fenceline move-out"
	}
	return "kubectl fenceline move-in"
}

// whoami names the person and the machine.
func whoami() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + cmp.Or(host, "unknown")
}

// read reads the cluster and the stored Move, and plans.
func (m *mover) read(ctx context.Context) error {
	now := &v1alpha1.Move{}
	err := m.c.Get(ctx, client.ObjectKey{Name: movein.MoveName(m.network)}, now)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if m.move != nil && (err != nil || now.UID != m.move.UID) {
		return fmt.Errorf("move %s has been ended meanwhile, by another command: nothing more was done", m.move.Name)
	}
	if err == nil {
		m.move = now
	}
	if m.move != nil && m.move.Spec.Out != m.out {
		return fmt.Errorf("move %s goes the other way than `%s`: end that one first", m.move.Name, m.command())
	}
	if m.move != nil && m.move.Spec.From != m.from {
		return fmt.Errorf("move %s is one from %s: write that in place of %s", m.move.Name, m.move.Spec.From, m.from)
	}
	if m.facts, err = readMove(ctx, m.c, m.from, m.network); err != nil {
		return err
	}
	before := m.facts
	if m.move != nil { // its definitions lack the key now
		before = before.Before(m.move)
	}
	if before.AreSliced() { // few have the right to read them, and few need it
		if m.facts.Slices, err = readSlices(ctx, m.c); err != nil {
			return err
		}
	}
	m.configs = map[string]string{}
	for _, d := range m.facts.Definitions {
		m.configs[d.String()] = d.Config
	}
	of := m.move
	if m.out {
		reserved, err := poolset.Reservations(ctx, m.c)
		if err != nil {
			return err
		}
		set := poolset.ReservedSet(reserved)
		if of == nil {
			if m.drafted = m.draft(set); m.drafted == nil {
				return nil
			}
			of = m.drafted
		}
		if m.facts, err = m.facts.Becoming(of, set); err != nil {
			return err
		}
	}
	if of != nil {
		m.facts = m.facts.Before(of)
	}
	if m.facts.Nodes, err = m.files(ctx, false, nil); err != nil {
		return err
	}
	m.plan = movein.PlanOf(m.facts)
	if m.leases, err = m.leasesIn(ctx, of); err != nil || !m.out {
		return err
	}
	m.planOut(of)
	m.becoming, err = m.facts.SpiderIPPools(of, movein.Left(nil, m.leaving))
	return err
}

// leasesIn reads the leases in the pools of a Move, if there is one.
func (m *mover) leasesIn(ctx context.Context, of *v1alpha1.Move) (leases []v1alpha1.IPLease, err error) {
	if of == nil {
		return nil, nil
	}
	for _, pool := range of.Spec.Pools {
		var all v1alpha1.IPLeaseList
		if err := m.c.List(ctx, &all, client.MatchingFields{"spec.pool": pool}); err != nil {
			return nil, fmt.Errorf("list the leases of pool %s: %w", pool, err)
		}
		leases = append(leases, all.Items...)
	}
	return leases, nil
}

func (m *mover) say(format string, args ...any) {
	fmt.Fprintf(printable{m.s.ErrOut}, format+"\n", args...)
}

// mine returns an error if another person moves the network.
func (m *mover) mine(takeOver bool) error {
	if m.move == nil || m.move.Spec.Holder == m.who || takeOver {
		return nil
	}
	return fmt.Errorf("%s moves the network since %s (move %s): ask there, or take the move over with --take-over",
		m.move.Spec.Holder, m.move.CreationTimestamp.UTC().Format(time.RFC3339), m.move.Name)
}

// may returns an error that names the rights which the person lacks, before anything is written.
func (m *mover) may(ctx context.Context) error {
	var asks []authorizationv1.ResourceAttributes
	for _, of := range []struct{ resource, verbs string }{{"moves", "create update delete"}, {"ippools", "create update delete"}, {"ipleases", "delete"}} {
		for verb := range strings.FieldsSeq(of.verbs) {
			asks = append(asks, authorizationv1.ResourceAttributes{Group: v1alpha1.GroupName, Resource: of.resource, Verb: verb})
		}
	}
	for _, c := range m.plan.Changes {
		asks = append(asks, authorizationv1.ResourceAttributes{Group: definitions.Group, Resource: "network-attachment-definitions", Verb: "update", Namespace: c.Namespace})
	}
	if m.from == v1alpha1.MoveSpiderpool {
		for _, verb := range []string{"create", "update", "delete"} {
			asks = append(asks, authorizationv1.ResourceAttributes{Group: spiderpool.Group, Resource: "spiderreservedips", Verb: verb})
		}
	}
	if m.out && m.from == v1alpha1.MoveSpiderpool {
		for _, ask := range []string{"spiderippools create", "spiderippools update", "spiderippools/status update", "spiderendpoints create", "spiderendpoints update"} {
			resource, verb, _ := strings.Cut(ask, " ")
			resource, sub, _ := strings.Cut(resource, "/")
			asks = append(asks, authorizationv1.ResourceAttributes{Group: spiderpool.Group, Resource: resource, Subresource: sub, Verb: verb})
		}
	}
	if m.out && m.from == v1alpha1.MoveWhereabouts {
		for _, ask := range []string{"ippools create", "ippools update", "overlappingrangeipreservations create"} {
			resource, verb, _ := strings.Cut(ask, " ")
			asks = append(asks, authorizationv1.ResourceAttributes{Group: reservations.Group, Resource: resource, Verb: verb, Namespace: m.recordsIn})
		}
	}
	if in, marked := movein.Marks(m.plan, m.network, nil); len(marked) > 0 {
		for _, verb := range []string{"create", "update"} {
			asks = append(asks, authorizationv1.ResourceAttributes{Group: whereaboutsRecords.Group, Resource: "ippools", Verb: verb, Namespace: in})
		}
	}
	if m.from == v1alpha1.MoveHostLocal {
		asks = append(asks, authorizationv1.ResourceAttributes{Resource: "pods", Subresource: "exec", Verb: "create", Namespace: m.c.Namespace})
	}
	var lacks []error
	for _, a := range asks {
		review, err := m.c.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for the right to %s %s: %w", a.Verb, a.Resource, err)
		}
		if !review.Status.Allowed {
			what := strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/")
			lacks = append(lacks, fmt.Errorf("you have no right to %s %s in %s", a.Verb, strings.TrimSuffix(what+"."+a.Group, "."), cmp.Or(a.Namespace, "all namespaces")))
		}
	}
	return errors.Join(lacks...)
}

// advance writes the stored Move, which must be in one of the steps.
func (m *mover) advance(ctx context.Context, to v1alpha1.MoveStep, edit func(*v1alpha1.MoveSpec), from ...v1alpha1.MoveStep) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now := &v1alpha1.Move{}
		if err := m.c.Get(ctx, client.ObjectKeyFromObject(m.move), now); err != nil {
			return fmt.Errorf("read move %s: %w", m.move.Name, err)
		}
		if now.UID != m.move.UID || !slices.Contains(from, now.Spec.Step) {
			return fmt.Errorf("move %s is at step %s meanwhile, by another command: nothing more was done", now.Name, now.Spec.Step)
		}
		now.Spec.Step, now.Spec.Holder = to, m.who
		edit(&now.Spec)
		if err := m.c.Update(ctx, now); err != nil {
			return err
		}
		m.move = now
		return nil
	})
}

func asItIs(*v1alpha1.MoveSpec) {}

// still returns an error if another command has taken the move over or on: a definition or a pool that is written
// afterwards could free an address in both IPAMs.
func (m *mover) still(ctx context.Context) error {
	now := &v1alpha1.Move{}
	if err := m.c.Get(ctx, client.ObjectKeyFromObject(m.move), now); err != nil {
		return fmt.Errorf("read move %s: %w", m.move.Name, err)
	}
	if now.UID != m.move.UID || now.Spec.Step != m.move.Spec.Step || now.Spec.Holder != m.move.Spec.Holder {
		return fmt.Errorf("move %s is at step %s by %s meanwhile: nothing more was done", now.Name, now.Spec.Step, now.Spec.Holder)
	}
	return nil
}

// allPlanned returns an error unless the plan has each definition of the stored Move: what cannot be read cannot be
// changed back.
func (m *mover) allPlanned() error {
	lacks, _ := m.plan.Missed(m.move)
	if len(lacks) == 0 {
		return nil
	}
	anew := fmt.Sprintf("its text in `kubectl get flmove %s -o yaml`", m.move.Name)
	if frozen := movein.FrozenSlices(m.from, lacks[0]); frozen != "" { // by the text before, whereabouts divides the range anew
		anew = "this frozen text, and not with that before the move, by which whereabouts would divide the range anew and give addresses in use:\n" + frozen
	}
	return fmt.Errorf("definition %s/%s of move %s cannot be planned, so nothing was changed: %s. If it was deleted, make it anew with %s",
		lacks[0].Namespace, lacks[0].Name, m.move.Name, cmp.Or(strings.Join(m.plan.Blocks, "; "), "it does not exist"), anew)
}

// define writes a definition. If another program owns it, the person has to make the change there, and define waits.
// A definition in none of the states of a move is not overwritten.
func (m *mover) define(ctx context.Context, c movein.Change, config string) error {
	name := c.Namespace + "/" + c.Name
	owner, isSaid := "", false
	for _, d := range m.facts.Definitions {
		if d.String() == name {
			owner = d.Owner
		}
	}
	poll := func(ctx context.Context) (done bool, err error) {
		if err := m.still(ctx); err != nil {
			return false, err
		}
		d := &unstructured.Unstructured{}
		d.SetGroupVersionKind(definitions)
		if err := m.c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Name}, d); err != nil {
			return false, fmt.Errorf("read definition %s: %w", name, err)
		}
		now, _, _ := unstructured.NestedString(d.Object, "spec", "config")
		if now == config || owner != "" && v1alpha1.SameConfig(now, config) { // the owner may write the text anew
			return true, nil
		}
		if c.StateOf(now) == movein.Edited {
			return false, fmt.Errorf("definition %s was edited by others, so it is left as it is: write one of its texts of `%s status -o json` into it (before: %s; switched: Fenceline), and repeat the command", name, m.command(), m.from)
		}
		if owner != "" {
			if !isSaid {
				m.say("%s owns definition %s and would undo an edit. Make this its spec.config there; the command waits:\n%s", owner, name, config)
			}
			isSaid = true
			return false, nil
		}
		if err := unstructured.SetNestedField(d.Object, config, "spec", "config"); err != nil {
			return false, fmt.Errorf("edit definition %s: %w", name, err)
		}
		err = m.c.Update(ctx, d)
		if apierrors.IsConflict(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("edit definition %s: %w", name, err)
		}
		m.say("definition %s: %s", name, said(c.StateOf(config), m.out, m.from))
		return true, nil
	}
	return wait.PollUntilContextCancel(ctx, time.Second, true, poll)
}

// disable switches the pools of the move on or off.
func (m *mover) disable(ctx context.Context, disabled bool) error {
	for _, name := range m.move.Spec.Pools {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := m.still(ctx); err != nil {
				return err
			}
			pool := &v1alpha1.IPPool{}
			err := m.c.Get(ctx, client.ObjectKey{Name: name}, pool)
			if apierrors.IsNotFound(err) && disabled || err == nil && ptr.Deref(pool.Spec.Disable, false) == disabled {
				return nil
			}
			if err != nil {
				return err
			}
			if pool.Spec.Disable = nil; disabled {
				pool.Spec.Disable = ptr.To(true)
			}
			return m.c.Update(ctx, pool)
		})
		if err != nil {
			return fmt.Errorf("pool %s: %w", name, err)
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// await waits until the status of the stored Move, which describes its spec, fulfils a condition.
func (m *mover) await(ctx context.Context, within time.Duration, is func(*v1alpha1.MoveStatus) bool) error {
	return wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		now := &v1alpha1.Move{}
		if err := m.c.Get(ctx, client.ObjectKeyFromObject(m.move), now); err != nil {
			return false, err
		}
		m.move = now
		return now.Status.ObservedGeneration == now.Generation && is(&now.Status), nil
	})
}
