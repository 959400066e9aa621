// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
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
)

// heldIn bounds the wait for the controller, adoptedIn the wait for the agents.
const heldIn, adoptedIn = 30 * time.Second, 30 * time.Second

// mover carries a move out, step by step. Each step can be repeated: the stored Move says how far it is.
type mover struct {
	s       *session
	c       *cluster.Cluster
	network string
	// who is the holder of the move.
	who string
	// settle is how long an ADD may take that began before a change of a definition or of a pool. An address that comes
	// later is found by the next reading of the records, and by the probe of an ADD.
	settle time.Duration
	move   *v1alpha1.Move
	// facts and plan are of the last reading, as if the move had not begun.
	facts movein.Facts
	plan  movein.Plan
	// configs are the definitions of the plan as they are.
	configs map[string]string
	leases  []v1alpha1.IPLease
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
	if m.facts, err = readMove(ctx, m.c, m.network); err != nil {
		return err
	}
	m.configs = map[string]string{}
	for _, d := range m.facts.Definitions {
		m.configs[d.String()] = d.Config
	}
	if m.move != nil {
		m.facts = m.facts.Before(m.move)
	}
	m.plan = movein.PlanOf(m.facts)
	var all v1alpha1.IPLeaseList
	if err := m.c.List(ctx, &all); err != nil {
		return err
	}
	m.leases = all.Items
	return nil
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
	fenceline := v1alpha1.GroupVersion().Group
	asks := []authorizationv1.ResourceAttributes{
		{Group: fenceline, Resource: "moves", Verb: "create"}, {Group: fenceline, Resource: "moves", Verb: "update"}, {Group: fenceline, Resource: "moves", Verb: "delete"},
		{Group: fenceline, Resource: "ipleases", Verb: "delete"}, {Group: fenceline, Resource: "ippools", Verb: "create"}, {Group: fenceline, Resource: "ippools", Verb: "update"}, {Group: fenceline, Resource: "ippools", Verb: "delete"},
	}
	for _, c := range m.plan.Changes {
		asks = append(asks, authorizationv1.ResourceAttributes{Group: definitions.Group, Resource: "network-attachment-definitions", Verb: "update", Namespace: c.Namespace})
	}
	var lacks []error
	for _, a := range asks {
		review, err := m.c.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for the right to %s %s: %w", a.Verb, a.Resource, err)
		}
		if !review.Status.Allowed {
			lacks = append(lacks, fmt.Errorf("you have no right to %s %s.%s%s", a.Verb, a.Resource, a.Group, strings.TrimSuffix(" in namespace "+a.Namespace, " in namespace ")))
		}
	}
	return errors.Join(lacks...)
}

// advance writes the stored Move, which must be in one of the steps.
func (m *mover) advance(ctx context.Context, to v1alpha1.MoveStep, edit func(*v1alpha1.MoveSpec), from ...v1alpha1.MoveStep) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now := &v1alpha1.Move{}
		if err := m.c.Get(ctx, client.ObjectKeyFromObject(m.move), now); err != nil {
			return err
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
	return fmt.Errorf("definition %s/%s of move %s cannot be planned, so nothing was changed: %s",
		lacks[0].Namespace, lacks[0].Name, m.move.Name, cmp.Or(strings.Join(m.plan.Blocks, "; "), "it does not exist"))
}

// define writes a definition. If another program owns it, the person has to make the change there, and define waits.
// A definition in none of the states of a move is not overwritten.
func (m *mover) define(ctx context.Context, c movein.Change, config string) error {
	name := c.Namespace + "/" + c.Name
	owner, said := "", false
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
		if now == config || owner != "" && c.StateOf(now) == c.StateOf(config) && c.StateOf(now) != movein.Returning {
			return true, nil
		}
		if c.StateOf(now) == movein.Edited {
			return false, fmt.Errorf("definition %s was edited by others, so it is left as it is: write one of its texts of `kubectl fenceline move-in status -o json` into it (before: whereabouts as it was; switched: Fenceline), and repeat the command", name)
		}
		if owner != "" {
			if !said {
				m.say("%s owns definition %s and would undo an edit. Make this its spec.config there; the command waits:\n%s", owner, name, config)
			}
			said = true
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
		m.say("definition %s: %s", name, c.StateOf(config))
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

// start carries the move out up to the step Open, from wherever it is.
func (m *mover) start(ctx context.Context) error {
	if len(m.plan.Blocks) > 0 && (m.move == nil || m.move.Spec.Step == v1alpha1.MoveFreeze) {
		writePlan(paper{printable: printable{m.s.Out}, colour: m.s.colour}, m.network, m.plan)
		return errBlocked
	}
	if m.move == nil {
		if err := m.begin(ctx); err != nil {
			return err
		}
	}
	if err := m.allPlanned(); err != nil {
		return err
	}
	if m.move.Spec.Step == v1alpha1.MoveBack {
		return fmt.Errorf("move %s goes back: finish that first with `kubectl fenceline move-in back`", m.move.Name)
	}
	if _, more := m.plan.Missed(m.move); len(more) > 0 { // made since the begin
		step := m.move.Spec.Step
		if err := m.advance(ctx, step, func(s *v1alpha1.MoveSpec) { s.Definitions = append(s.Definitions, more...) }, step); err != nil {
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

// begin stores the Move.
func (m *mover) begin(ctx context.Context) error {
	m.move = &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: movein.MoveName(m.network)}, Spec: v1alpha1.MoveSpec{
		From: v1alpha1.MoveWhereabouts, Network: m.network, Holder: m.who, Step: v1alpha1.MoveFreeze, Definitions: m.plan.Definitions(),
	}}
	for _, pool := range m.plan.Pools {
		m.move.Spec.Pools = append(m.move.Spec.Pools, pool.Name)
	}
	if err := m.c.Create(ctx, m.move); err != nil {
		return fmt.Errorf("store the move: %w", err)
	}
	m.say("move %s is stored", m.move.Name)
	return nil
}

// freeze makes the pools, has whereabouts give no address of theirs, and reads its records again.
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
	if err := pause(ctx, m.settle); err != nil {
		return err
	}
	if err := m.read(ctx); err != nil {
		return err
	}
	if len(m.plan.Blocks) > 0 {
		return fmt.Errorf("something blocks the move meanwhile: %s. Mend it and repeat the command, or go back", strings.Join(m.plan.Blocks, "; "))
	}
	return m.advance(ctx, v1alpha1.MoveAdopt, func(s *v1alpha1.MoveSpec) { s.Records = m.plan.Records }, v1alpha1.MoveFreeze)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// hold waits until each address of the records has a lease.
func (m *mover) hold(ctx context.Context) error {
	err := m.await(ctx, heldIn, func(s *v1alpha1.MoveStatus) bool {
		named := map[string]bool{}
		for _, r := range m.move.Spec.Records {
			named[r.Address] = true
		}
		return len(s.Addresses) == len(named)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("the controller has not held the addresses of move %s within %s: see that it runs, and repeat the command; pods that start on the network wait meanwhile, so go back if that takes long", m.move.Name, heldIn)
	}
	return err
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

// adopt reads the records once more, for addresses that whereabouts gave late, and waits for the agents.
func (m *mover) adopt(ctx context.Context) error {
	if err := m.read(ctx); err != nil {
		return err
	}
	if added := movein.Added(m.move, m.plan.Records, m.leases); len(added) > 0 {
		m.say("whereabouts has given %d addresses meanwhile", len(added))
		err := m.advance(ctx, v1alpha1.MoveOpen, func(s *v1alpha1.MoveSpec) {
			s.Records = append(s.Records, movein.Added(m.move, m.plan.Records, m.leases)...)
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

// back undoes a move, from wherever it is.
//
// It goes back by the frozen definitions: after the pause no ADD of either IPAM is under way, so what is read then is
// what whereabouts has to exclude. A disabled pool alone would not do, since it still serves kept addresses.
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
	err := m.advance(ctx, v1alpha1.MoveBack, func(s *v1alpha1.MoveSpec) { s.Records = movein.Unrecorded(s.Records, m.plan.Records) },
		v1alpha1.MoveFreeze, v1alpha1.MoveBack)
	if err != nil {
		return err
	}
	if err := m.giveRest(ctx); err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, adoptedIn, true, func(ctx context.Context) (bool, error) {
		err := m.read(ctx)
		goBack, _ := movein.Split(m.move, m.leases)
		return len(goBack) == 0, err
	})
	if err != nil && (!wait.Interrupted(err) || ctx.Err() != nil) {
		return err
	}
	if err := m.endRetained(ctx); err != nil {
		return err
	}
	if left := m.reportLeft(); left > 0 {
		return m.giveRest(ctx)
	}
	for _, c := range m.plan.Changes {
		if err := m.define(ctx, c, c.Before); err != nil {
			return err
		}
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

// giveRest has whereabouts give all addresses but those that Fenceline has given.
func (m *mover) giveRest(ctx context.Context) error {
	if err := m.read(ctx); err != nil {
		return err
	}
	if err := m.allPlanned(); err != nil {
		return err
	}
	_, given := movein.Split(m.move, m.leases)
	for _, c := range m.plan.Changes {
		config, err := c.Returned(movein.AddressesOf(given))
		if err != nil {
			return fmt.Errorf("definition %s/%s: %w", c.Namespace, c.Name, err)
		}
		if err := m.define(ctx, c, config); err != nil {
			return err
		}
	}
	return nil
}

// endRetained deletes the leases that are kept for a name or for the next sandbox of a pod: they have no speaker, and
// that next sandbox asks whereabouts.
func (m *mover) endRetained(ctx context.Context) error {
	for i := range m.leases {
		l := &m.leases[i]
		if !slices.Contains(m.move.Spec.Pools, l.Spec.Pool) || l.Spec.State != v1alpha1.StateRetained {
			continue
		}
		err := m.c.Delete(ctx, l, client.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("end the kept lease of %s: %w", l.Spec.Address, err)
		}
	}
	return m.read(ctx)
}

// reportLeft tells which leases are left, and what ends them. It returns their number.
func (m *mover) reportLeft() int {
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
		m.say("These addresses stay with Fenceline, and whereabouts excludes them, until their leases end. Restart their pods, and repeat the command:")
		list(given)
	}
	return len(goBack) + len(given)
}

// finish ends a move that is done: what remains is an ordinary installation.
func (m *mover) finish(ctx context.Context) error {
	if m.move == nil {
		return fmt.Errorf("there is no move of %s", m.network)
	}
	if step := m.move.Spec.Step; step != v1alpha1.MoveOpen {
		return fmt.Errorf("move %s is at step %s: only a move that was started whole can finish", m.move.Name, step)
	}
	if m.move.Status.ObservedGeneration != m.move.Generation {
		return fmt.Errorf("the controller has not looked at move %s yet: see that it runs, and repeat the command", m.move.Name)
	}
	if open := m.open(); len(open) > 0 {
		return fmt.Errorf("move %s is not done: %s", m.move.Name, strings.Join(open, "; "))
	}
	if err := m.c.Delete(ctx, m.move, client.Preconditions{UID: &m.move.UID, ResourceVersion: &m.move.ResourceVersion}); err != nil {
		return fmt.Errorf("delete move %s: %w", m.move.Name, err)
	}
	m.say("The move of %s is finished. Keep whereabouts on the nodes until the adopted pods have ended: it gets their DELs.", m.network)
	return nil
}

// open returns what keeps a move from its end.
func (m *mover) open() (open []string) {
	if err := m.allPlanned(); err != nil {
		return []string{err.Error()}
	}
	if held := movein.Held(m.move, m.leases); held > 0 {
		open = append(open, fmt.Sprintf("%d addresses are held", held))
	}
	for _, a := range m.move.Status.Addresses {
		if a.State == v1alpha1.MoveConflict {
			open = append(open, fmt.Sprintf("%s is in conflict: %s; restart its pod", a.Address, a.Reason))
		}
	}
	for _, c := range m.plan.Changes {
		if state := c.StateOf(m.configs[c.Namespace+"/"+c.Name]); state != movein.Switched {
			open = append(open, fmt.Sprintf("definition %s/%s is %s", c.Namespace, c.Name, state))
		}
	}
	for _, r := range movein.Added(m.move, m.plan.Records, m.leases) {
		open = append(open, fmt.Sprintf("%s is in use outside Fenceline since the start: repeat `kubectl fenceline move-in start`", r.Address))
	}
	return open
}

// moveState is the answer of status.
type moveState struct {
	Network string                  `json:"network"`
	Step    v1alpha1.MoveStep       `json:"step"`
	Holder  string                  `json:"holder"`
	Status  v1alpha1.MoveStatus     `json:"status"`
	States  map[string]movein.State `json:"definitions"`
	Changes []movein.Change         `json:"changes"`
	Late    []v1alpha1.MoveRecord   `json:"late,omitempty"`
	Given   []netip.Addr            `json:"given,omitempty"`
	Open    []string                `json:"open,omitempty"`
	records map[string]v1alpha1.MoveRecord
}

func (m *mover) state() moveState {
	spec := &m.move.Spec
	s := moveState{
		Network: m.network, Step: spec.Step, Holder: spec.Holder, Status: m.move.Status, States: map[string]movein.State{}, Changes: m.plan.Changes,
		Late: movein.Added(m.move, m.plan.Records, m.leases), records: map[string]v1alpha1.MoveRecord{},
	}
	_, given := movein.Split(m.move, m.leases)
	s.Given = movein.AddressesOf(given)
	for _, c := range m.plan.Changes {
		s.States[c.Namespace+"/"+c.Name] = c.StateOf(m.configs[c.Namespace+"/"+c.Name])
	}
	if spec.Step == v1alpha1.MoveOpen {
		s.Open = m.open()
	}
	for _, r := range spec.Records {
		s.records[r.Address] = r
	}
	return s
}

// next is what the person has to do.
func (s moveState) next() string {
	command := "kubectl fenceline move-in %s whereabouts " + s.Network
	switch {
	case s.Step == v1alpha1.MoveBack:
		return "It goes back. Repeat until nothing is left: " + fmt.Sprintf(command, "back")
	case s.Step != v1alpha1.MoveOpen:
		return "The start or the way back has not ended, and pods that start on the network wait. Repeat: " +
			fmt.Sprintf(command, "start") + ", or go back: " + fmt.Sprintf(command, "back")
	case len(s.Open) > 0:
		return "Not done: " + strings.Join(s.Open, "; ") + "."
	}
	return "All pods are adopted. End the move: " + fmt.Sprintf(command, "finish")
}

func (s moveState) write(w paper) {
	fmt.Fprintf(w, "Network %s, step %s, moved by %s. Adopted: %d, held: %d, in conflict: %d, ended: %d.\n",
		s.Network, s.Step, s.Holder, s.Status.Adopted, s.Status.Held, s.Status.Conflicts, s.Status.Ended)
	for _, c := range s.Changes {
		name := c.Namespace + "/" + c.Name
		w.about("32", "definition "+name, string(s.States[name]))
	}
	if n := len(s.Given); n > 0 {
		w.about("32", "Fenceline", fmt.Sprintf("has given %d addresses of the pools to others than the pods of the move", n))
	}
	fmt.Fprintln(w, s.next())
	var rows [][]string
	for _, a := range s.Status.Addresses {
		if a.State != v1alpha1.MoveAdopted {
			r := s.records[a.Address]
			rows = append(rows, []string{a.Address, string(a.State), r.Namespace + "/" + r.Pod, r.Node, a.Reason})
		}
	}
	if len(rows) > 0 {
		fmt.Fprintln(w)
		w.table([]string{"ADDRESS", "STATE", "POD", "NODE", "WHY"}, rows)
	}
}
