// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// parentRetry is the wait before the next proof on a parent that heard no other host.
	parentRetry = time.Second
	// takenRetry is the wait before the next check whether an ADD still uses a lease.
	takenRetry = 20 * time.Millisecond
)

// attendance proves and watches one Warm lease. One goroutine runs it, until the lease ends.
type attendance struct {
	keeper *Keeper
	item   *item
}

// run proves the address, again after each doubt, until another host uses it or ctx ends.
func (a attendance) run(ctx context.Context) {
	defer a.endWatch()
	k, tries := a.keeper, loop.Backoff{First: retryFirst, Most: retryMost}
	// A switch that tracks hosts may probe after each proof.
	asked := loop.Backoff{First: parentRetry, Most: retryMost}
	for ctx.Err() == nil {
		round, params := a.beginRound(ctx)
		doubt, answer, err := a.prove(round, params)
		if err == nil && doubt == segment.DoubtNone {
			tries.Reset()
			doubt, answer, err = a.stayReady(round)
		}
		wait := parentRetry
		switch {
		case ctx.Err() != nil:
			return
		case round.Err() != nil:
			wait = 0 // the pool's probe parameters, or the parent, have changed
		case err != nil:
			wait = tries.Next()
			if tries.IsNew(err) {
				k.Log.Info("cannot prove a Warm lease; trying again", "lease", a.item.name, "why", err.Error())
			}
		case doubt == segment.DoubtAsked:
			wait = asked.Next()
		case a.usedElsewhere(doubt, &answer):
			a.quarantine(ctx, params, answer)
			return
		}
		// The next round begins a new watch: the kernel's entry or the parent may have changed.
		a.endWatch()
		loop.For(ctx, k.Clock, wait, nil)
	}
}

// beginRound returns the probe parameters of the next proof. The context ends when the proof has to
// begin again, with other parameters or on another parent.
func (a attendance) beginRound(ctx context.Context) (context.Context, segment.ProbeParams) {
	round, renew := context.WithCancel(ctx)
	a.keeper.mu.Lock()
	defer a.keeper.mu.Unlock()
	if a.item.renew != nil {
		a.item.renew() // ends the context of the round before
	}
	a.item.renew = renew
	return round, a.item.params
}

// prove begins to watch the address, unless it is watched already, and proves it.
func (a attendance) prove(ctx context.Context, params segment.ProbeParams) (segment.Doubt, segment.Answer, error) {
	k, i := a.keeper, a.item
	if i.watch == nil {
		parent, exists, err := k.Parent(i.pair.Parent)
		if err != nil {
			return segment.DoubtUnproven, segment.Answer{}, err
		}
		if !exists {
			return segment.DoubtUnproven, segment.Answer{},
				fmt.Errorf("watch %s on parent %s: this node has no such interface", i.addr, i.pair.Parent)
		}
		w, err := k.Watch(parent, i.addr, params)
		if err != nil {
			return segment.DoubtUnproven, segment.Answer{}, err
		}
		k.mu.Lock()
		i.watch, i.parent = w, parent
		k.mu.Unlock()
	}
	return i.watch.Prove(ctx, segment.TimingFor(i.addr))
}

// stayReady lets ADDs take the lease until a doubt arises.
func (a attendance) stayReady(ctx context.Context) (segment.Doubt, segment.Answer, error) {
	a.setProven(func() bool { return ctx.Err() == nil })
	defer a.setProven(func() bool { return false })
	doubt, answer, err := a.item.watch.Wait(ctx)
	if ctx.Err() == nil && err == nil {
		a.keeper.Metrics.WarmLost(a.item.pair.Pool, string(doubt))
	}
	return doubt, answer, err
}

// setProven calls valid under the lock, so that no proof outlives a change of its parameters.
func (a attendance) setProven(valid func() bool) {
	a.keeper.mu.Lock()
	a.item.proven = valid()
	a.keeper.mu.Unlock()
	a.keeper.count()
}

// usedElsewhere reports whether the lease's address is in use. If a pod of this node has the
// address, the address is in use only if the journal records the pod: then the record of its lease
// was lost. A pod without a journal entry is ending.
func (a attendance) usedElsewhere(doubt segment.Doubt, answer *segment.Answer) bool {
	if doubt != segment.DoubtHeld {
		return doubt == segment.DoubtSpoken
	}
	parent, exists, err := a.keeper.Parent(a.item.pair.Parent)
	if err != nil || !exists {
		return false
	}
	mac, held := a.keeper.Held(parent, a.item.addr)
	*answer = segment.Answer{Conflict: true, MAC: mac, Source: segment.SourceProbe}
	return held
}

// quarantine quarantines a Warm lease whose address another host uses. It releases the lease in mode
// Observe, which has no quarantine, and if that host answers for many addresses of the pool.
func (a attendance) quarantine(ctx context.Context, params segment.ProbeParams, answer segment.Answer) {
	k := a.keeper
	if !a.awaitUntaken(ctx) {
		return
	}
	// The decision is not repeated with the write, because the host counts as met with each decision.
	var action foreignhost.Action
	a.persist(ctx, func() (err error) {
		action, err = k.Foreign.Meet(ctx, a.item.parent, a.item.pair.Pool, answer.MAC.String())
		return err
	})
	if action != foreignhost.Quarantine {
		k.pause(a.item.pair, params)
	}
	a.persist(ctx, func() error { return a.writeQuarantine(ctx, params.Mode, action, answer) })
	k.Wake()
}

// persist repeats a step of a quarantine until it succeeds, the lease is no longer this node's, or
// ctx ends.
func (a attendance) persist(ctx context.Context, step func() error) {
	k, tries := a.keeper, loop.Backoff{First: retryFirst, Most: retryMost}
	for ctx.Err() == nil {
		err := step()
		if err == nil || errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone) {
			return
		}
		if tries.IsNew(err) {
			k.Log.Info("cannot quarantine a Warm lease whose address another host uses; trying again",
				"lease", a.item.name, "why", err.Error())
		}
		loop.For(ctx, k.Clock, tries.Next(), nil)
	}
}

// awaitUntaken withholds the lease once no ADD uses it. It returns false if the lease or ctx ended.
func (a attendance) awaitUntaken(ctx context.Context) bool {
	for ctx.Err() == nil {
		taken, ended := a.withhold()
		if !taken {
			return !ended
		}
		loop.For(ctx, a.keeper.Clock, takenRetry, nil)
	}
	return false
}

// withhold keeps ADDs from the lease, unless one has taken it. ended: it had ended before that.
func (a attendance) withhold() (taken, ended bool) {
	a.keeper.mu.Lock()
	defer a.keeper.mu.Unlock()
	if ended = a.item.done; !a.item.taken {
		a.item.done = true
	}
	return a.item.taken, ended
}

func (a attendance) writeQuarantine(ctx context.Context, mode v1alpha1.ConflictMode, action foreignhost.Action, heard segment.Answer) error {
	k := a.keeper
	k.mu.Lock()
	l := a.item.lease
	k.mu.Unlock()
	if action != foreignhost.Quarantine || mode == v1alpha1.ModeObserve {
		if err := k.Leases.Delete(ctx, l); err != nil {
			return err
		}
		k.freed(l, string(segment.DoubtSpoken))
	} else if _, err := k.Leases.Update(ctx, l, lease.ThrowOut(lease.Evidence{MAC: heard.MAC.String(), Source: string(heard.Source)})); err != nil {
		return err
	}
	k.Metrics.Conflict(l.Spec.Pool, heard.Source)
	k.audit(audit.Conflict, l, heard.MAC.String(), "another host uses the address of a Warm lease")
	k.Events.Eventf(l, nil, corev1.EventTypeWarning, "AddressConflict", "Warm",
		"%s uses %s, which was kept ready for the next pod; another address is kept ready instead", heard.MAC, l.Spec.Address)
	return nil
}

// endWatch ends the watch. An address that an ADD has bound meanwhile stays with its pod.
func (a attendance) endWatch() {
	a.keeper.mu.Lock()
	w := a.item.watch
	a.item.watch, a.item.proven = nil, false
	a.keeper.mu.Unlock()
	if w == nil {
		return
	}
	if err := w.End(); err != nil {
		a.keeper.Log.Error(err, "cannot end the watch of an address: the kernel goes on reporting it", "lease", a.item.name)
	}
}
