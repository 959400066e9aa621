// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// askEvery is the mean time between two questions for all leases of the node. It bounds the time for
	// which a lost hint is missed, and a lease of which neither agent nor journal knows.
	askEvery = 20 * time.Minute
	// patience is the time that the controller has to answer. After it, the agent lists the leases itself,
	// and then, while there is no answer, about every listEvery.
	patience  = 10 * time.Second
	listEvery = 10 * time.Minute
	// renewEvery is the least time between two questions for addresses that come free, and up to a half less than
	// the greatest one. It bounds the time for which a wait trusts a controller that is away, well below the time
	// for which an ADD waits.
	renewEvery = 30 * time.Second
	// journalFirst is the time from a doubt to the question: recovery reads the leases of the journal meanwhile, and
	// each is read once.
	journalFirst = 5 * time.Second
	// spread is the longest time from a new leading controller to the question, so that agents do not ask together.
	spread = 30 * time.Second
	// retryAfter is the pause while the API server is away.
	retryAfter = time.Second
	// atOnce is how many leases are read at the same time, and mostReads how many before the next look at
	// the hint.
	atOnce, mostReads = 16, 64
	// readTimeout bounds one read.
	readTimeout = 5 * time.Second
)

// HintOptions are the options of Hints. All are required.
type HintOptions struct {
	Node string
	// Client reads the hint and the Node from the caches, and writes the hint. Live lists past any cache.
	Client client.Client
	Live   client.Reader
	// Leases reads leases past any cache, and tells View of them.
	Leases *lease.Store
	View   *lease.View
	// Journal returns the names of the leases in the journal.
	Journal func() []string
	// Waits returns the pools for which ADDs of this node wait, and WaitsChanged is up when they have changed. Hear
	// takes what the hint tells of addresses that came free.
	Waits        func() []v1alpha1.PoolWait
	WaitsChanged loop.Wake
	Hear         func(*v1alpha1.LeaseHint)
	// Release releases Warm leases whose addresses other nodes want.
	Release func(context.Context, []v1alpha1.LeaseVersion) error
	// Rand returns a number from 0 to 1.
	Rand  func() float64
	Clock clock.PassiveClock
	Log   logr.Logger
}

// Hints fills the View at the start of the agent, and reads each lease again that the hint of the node names: a
// GET decides, not the hint (R7). It asks for addresses that come free while ADDs wait. Calls of Reconcile must not
// overlap.
type Hints struct {
	HintOptions
	// again: all leases must be read again.
	again loop.Wake

	// start is the question of this agent, and due the earliest time of the next one. anew: that comes also without an
	// answer to this one.
	start          string
	due            time.Time
	answered, anew bool
	// leader is the ID of the controller that answered, or of one that leads since then.
	leader string
	// list is the earliest time at which the agent lists the leases itself.
	list time.Time
	// filling: the leases of an answer or of a list are being read. Those in todo are left.
	filling bool
	todo    []string
	// last is the status of the hint whose changes are read. It is nil before the first one.
	last *v1alpha1.LeaseHintStatus
	// renew is the time of the next question for addresses that come free, if ADDs wait.
	renew time.Time
	// round is the question for them that this agent wrote last, and wrote has its waits.
	round string
	wrote []v1alpha1.PoolWait
	// doubted: what the View knows may have been lost by the store.
	doubted atomic.Bool
	// asked is the time of the first question since the last answer. It is nil after an answer.
	asked atomic.Pointer[time.Time]
}

// NewHints returns Hints.
func NewHints(o HintOptions) *Hints { return &Hints{HintOptions: o, again: loop.NewWake()} }

// Doubt has all leases asked for, and those read again that nobody reads in the next seconds. Call it if the store
// may have lost writes, as after a restore from a backup. It may be called concurrently with Reconcile.
func (h *Hints) Doubt() {
	h.doubted.Store(true)
	h.again.Up()
}

// Unanswered returns the time for which the agent has waited for an answer, or 0. It may be called concurrently
// with Reconcile.
func (h *Hints) Unanswered() time.Duration {
	if asked := h.asked.Load(); asked != nil {
		return h.Clock.Since(*asked)
	}
	return 0
}

// wake has Reconcile called at the start, and after each Doubt.
func (h *Hints) wake(ctx context.Context, q queue) error {
	q.Add(h.request())
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.again:
			case <-h.WaitsChanged:
			}
			q.Add(h.request())
		}
	}()
	return nil
}

// request is the only one that Reconcile gets.
func (h *Hints) request() ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Name: h.Node}}
}

// Reconcile asks, lists and reads what is due.
func (h *Hints) Reconcile(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
	hint := &v1alpha1.LeaseHint{}
	err := h.Client.Get(ctx, r.NamespacedName, hint)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read the hint of node %s: %w", h.Node, err)
	}
	h.Hear(hint)
	now := h.Clock.Now()
	if h.doubted.Swap(false) {
		h.View.Doubt()
		h.due, h.anew = now.Add(journalFirst), true
	}
	if h.start == "" || (h.answered || h.anew) && !now.Before(h.due) || h.answered && err != nil {
		h.begin(now) // also if somebody has deleted the hint
	}
	// A question that cannot be written must not keep the agent from reading.
	err = errors.Join(h.ask(ctx, hint), h.follow(ctx, &hint.Status), h.fill(ctx, &hint.Status), h.Release(ctx, hint.Status.Wanted))
	switch {
	case ctx.Err() != nil:
		return ctrl.Result{}, nil //nolint:nilerr // the agent ends
	case lease.IsUnavailable(err):
		h.Log.V(1).Info("the leases of this node wait for the API server", "why", err.Error())
		return ctrl.Result{RequeueAfter: retryAfter}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: h.pause()}, nil
}

// begin makes a new question.
func (h *Hints) begin(now time.Time) {
	h.due, h.list = now.Add(h.jitter(askEvery)), now.Add(patience)
	if h.start != "" {
		h.list = now.Add(h.jitter(listEvery)) // the view is filled, and a list costs the API server much
	}
	h.start, h.answered, h.anew = string(uuid.NewUUID()), false, false
	h.asked.CompareAndSwap(nil, &now)
	h.View.Forget()
}

// jitter returns a time that is up to a tenth shorter or longer, so that agents that start together do not
// ask together for ever.
func (h *Hints) jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(h.Rand()*float64(d/5))
}

// pause returns the time until Reconcile has something to do without a change of the hint.
func (h *Hints) pause() time.Duration {
	next := h.due
	switch {
	case h.filling:
		return time.Millisecond
	case !h.answered && (!h.anew || h.list.Before(h.due)):
		next = h.list
	}
	if len(h.Waits()) > 0 && h.renew.Before(next) {
		next = h.renew
	}
	return max(time.Millisecond, next.Sub(h.Clock.Now()))
}

// ask writes the questions, until they are answered. The hint goes with its Node.
func (h *Hints) ask(ctx context.Context, hint *v1alpha1.LeaseHint) error {
	asks := hint.DeepCopy()
	if !h.answered {
		asks.Spec.Start = h.start
	}
	waits, now := h.Waits(), h.Clock.Now()
	last := hint.Spec.Waits
	if hint.Spec.Round == h.round {
		last = h.wrote // an older CRD drops a part of them
	}
	if !slices.EqualFunc(waits, last, sameWait) || len(waits) > 0 && !now.Before(h.renew) {
		asks.Spec.Waits, asks.Spec.Round = waits, string(uuid.NewUUID())
	}
	if asks.Spec.Start == hint.Spec.Start && asks.Spec.Round == hint.Spec.Round {
		return nil
	}
	node := &corev1.Node{}
	if err := h.Client.Get(ctx, client.ObjectKey{Name: h.Node}, node, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("read node %s: %w", h.Node, err)
	}
	asks.Name = h.Node
	asks.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	round := asks.Spec.Round
	write := func() error { return h.Client.Update(ctx, asks) }
	if hint.Name == "" {
		write = func() error { return h.Client.Create(ctx, asks) }
	}
	switch err := write(); {
	case err == nil && round != hint.Spec.Round:
		h.round, h.wrote = round, waits
	case err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("ask for the leases of node %s: %w", h.Node, err)
	}
	h.renew = now.Add(renewEvery + time.Duration(h.Rand()*float64(renewEvery/2)))
	return nil // after a conflict, the event of the other write comes
}

func sameWait(a, b v1alpha1.PoolWait) bool {
	return a.Pool == b.Pool && a.Since.Equal(&b.Since) && slices.Equal(a.Addresses, b.Addresses)
}

// follow reads the leases that the hint names and the agent does not know in this version, those that have
// left since the last hint, and those that it names no longer.
func (h *Hints) follow(ctx context.Context, now *v1alpha1.LeaseHintStatus) error {
	last := h.last
	if last == nil {
		last = &v1alpha1.LeaseHintStatus{}
	}
	var names []string
	for _, l := range now.Changed {
		if h.View.Revision(l.Name) < revision(l) {
			names = append(names, l.Name)
		}
	}
	for _, l := range now.Left {
		// The version says little: a lease that ended unseen has the last one that the controller saw.
		if !slices.Contains(last.Left, l) {
			names = append(names, l.Name)
		}
	}
	own := h.View.Names()
	for _, l := range last.Changed {
		if !slices.ContainsFunc(now.Changed, func(n v1alpha1.LeaseVersion) bool { return n.Name == l.Name }) && slices.Contains(own, l.Name) {
			names = append(names, l.Name)
		}
	}
	if err := h.read(ctx, names); err != nil {
		return err
	}
	if h.last != nil && len(now.Left) == v1alpha1.MaxHintLeft && !slices.Contains(last.Left, now.Left[0]) {
		h.due = h.Clock.Now() // others may have left before it
	}
	if h.answered && now.Leader != h.leader {
		h.leader = now.Leader // it has not seen the changes before its start
		if at := h.Clock.Now().Add(time.Duration(h.Rand() * float64(spread))); at.Before(h.due) {
			h.due = at
		}
	}
	h.last = now
	return nil
}

// fill reads all leases of the node, after the answer, or after a list of its own.
func (h *Hints) fill(ctx context.Context, hint *v1alpha1.LeaseHintStatus) error {
	isAnswer, now := hint.Start == h.start, h.Clock.Now()
	switch {
	case h.answered:
	case isAnswer && !hint.All:
		h.todo, h.filling, h.answered = h.unread(hint.Leases), true, true
	case isAnswer, !now.Before(h.list):
		listed, err := h.listOwn(ctx)
		if err != nil {
			return err
		}
		if !isAnswer {
			h.Log.Info("the controller does not say which leases this node has; the agent has listed them itself", "leases", len(listed))
		}
		h.todo, h.filling, h.answered, h.list = h.unread(listed), true, isAnswer, now.Add(h.jitter(listEvery))
	}
	if !h.filling {
		return nil
	}
	if isAnswer && h.asked.Swap(nil) != nil {
		h.leader = hint.Leader
	}
	next := h.todo[:min(len(h.todo), mostReads)]
	if err := h.read(ctx, next); err != nil {
		return err
	}
	if h.todo = h.todo[len(next):]; len(h.todo) == 0 {
		h.filling = false
		h.View.Fill()
	}
	return nil
}

// listOwn lists the leases of this node past any cache, and returns their versions.
func (h *Hints) listOwn(ctx context.Context) ([]v1alpha1.LeaseVersion, error) {
	list := &v1alpha1.IPLeaseList{}
	if err := h.Live.List(ctx, list, client.MatchingFields{"spec.nodeName": h.Node}); err != nil {
		return nil, fmt.Errorf("list the leases of node %s: %w", h.Node, err)
	}
	var listed []v1alpha1.LeaseVersion
	for i := range list.Items {
		h.View.Saw(&list.Items[i])
		listed = append(listed, v1alpha1.LeaseVersion{Name: list.Items[i].Name, Version: list.Items[i].ResourceVersion})
	}
	return listed, nil
}

// unread returns the leases that must be read, if some leases are all that the node has: those that are known
// only in an older version, those that are known and not among them, and those of the journal that were never read.
func (h *Hints) unread(all []v1alpha1.LeaseVersion) (names []string) {
	listed := map[string]bool{}
	for _, l := range all {
		listed[l.Name] = true
		if h.View.Revision(l.Name) < revision(l) {
			names = append(names, l.Name)
		}
	}
	for _, name := range h.View.Names() {
		if !listed[name] {
			names = append(names, name)
		}
	}
	for _, name := range h.Journal() {
		if !listed[name] && h.View.Revision(name) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// read reads leases past any cache. The Store tells the View of them.
func (h *Hints) read(ctx context.Context, names []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, name := range names {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			_, err := h.Leases.Get(ctx, name)
			if errors.Is(err, lease.ErrGone) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

func revision(l v1alpha1.LeaseVersion) uint64 {
	n, err := strconv.ParseUint(l.Version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
