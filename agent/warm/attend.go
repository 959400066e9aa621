package warm

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// parentRetry is how often a parent that hears nothing is tried again.
	parentRetry = time.Second
	// takenRetry is how often it is looked whether an ADD is through with a lease.
	takenRetry = 20 * time.Millisecond
)

// attend proves a lease's address, again whenever a doubt arises, until
// somebody speaks for it or ctx ends.
func (k *Keeper) attend(ctx context.Context, i *item) {
	defer k.endWatch(i)
	retry, told := retryFirst, ""
	for ctx.Err() == nil {
		round, params := k.beginRound(ctx, i)
		doubt, answer, err := k.prove(round, i, params)
		if err == nil && doubt == segment.DoubtNone {
			retry, told = retryFirst, ""
			doubt, answer, err = k.stayReady(round, i)
		}
		wait := parentRetry
		switch {
		case ctx.Err() != nil:
			return
		case round.Err() != nil:
			wait = 0 // the pool wants it proven another way
		case err != nil:
			wait, retry = retry, min(2*retry, retryMost)
			if why := err.Error(); why != told {
				told = why
				k.Log.Info("a Warm lease cannot be proven; it is tried again", "lease", i.name, "why", why)
			}
		case k.spoken(i, doubt, &answer):
			k.throwOut(ctx, i, params.Mode, answer)
			return
		}
		// The next try watches anew: the kernel's entry, or the parent, may be another one.
		k.endWatch(i)
		k.sleep(ctx, wait)
	}
}

// beginRound returns what one proof goes by, and a context that ends when the
// pool wants another one.
func (k *Keeper) beginRound(ctx context.Context, i *item) (context.Context, segment.ProbeParams) {
	round, renew := context.WithCancel(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if i.renew != nil {
		i.renew() // the round before
	}
	i.renew = renew
	return round, i.params
}

// prove watches the address, if it is not watched yet, and proves it.
func (k *Keeper) prove(ctx context.Context, i *item, params segment.ProbeParams) (segment.Doubt, segment.Answer, error) {
	if i.watch == nil {
		parent, exists, err := k.Parent(i.pair.Parent)
		if err != nil {
			return segment.DoubtUnproven, segment.Answer{}, err
		}
		if !exists {
			return segment.DoubtUnproven, segment.Answer{}, fmt.Errorf("there is no interface %s", i.pair.Parent)
		}
		w, err := k.Watch(parent, i.addr, params)
		if err != nil {
			return segment.DoubtUnproven, segment.Answer{}, err
		}
		k.mu.Lock()
		i.watch, i.parent = w, parent
		k.mu.Unlock()
	}
	return i.watch.Prove(ctx, k.Timing(i.addr))
}

// stayReady lets ADDs take the lease until a doubt arises.
func (k *Keeper) stayReady(ctx context.Context, i *item) (segment.Doubt, segment.Answer, error) {
	k.setProven(i, func() bool { return ctx.Err() == nil })
	defer k.setProven(i, func() bool { return false })
	doubt, answer, err := i.watch.Wait(ctx)
	if ctx.Err() == nil && err == nil {
		k.Metrics.WarmLost(i.pair.Pool, string(doubt))
	}
	return doubt, answer, err
}

// setProven asks under the lock whether the proof counts still.
func (k *Keeper) setProven(i *item, counts func() bool) {
	k.mu.Lock()
	i.proven = counts()
	k.mu.Unlock()
	k.count()
}

// spoken tells whether somebody uses the address. An interface of this node
// that holds it is a pod whose record was lost, if the journal knows it, and
// otherwise one that is going.
func (k *Keeper) spoken(i *item, doubt segment.Doubt, answer *segment.Answer) bool {
	if doubt != segment.DoubtHeld {
		return doubt == segment.DoubtSpoken
	}
	parent, exists, err := k.Parent(i.pair.Parent)
	if err != nil || !exists {
		return false
	}
	mac, held := k.Held(parent, i.addr)
	*answer = segment.Answer{Conflict: true, MAC: mac, Source: segment.SourceProbe}
	return held
}

// throwOut sets a lease aside for whose address somebody else speaks. A pool in
// mode Observe has no quarantine: there it is given up.
func (k *Keeper) throwOut(ctx context.Context, i *item, mode v1alpha1.ConflictMode, answer segment.Answer) {
	if !k.awaitUntaken(ctx, i) {
		return
	}
	for retry := retryFirst; ctx.Err() == nil; retry = min(2*retry, retryMost) {
		err := k.writeThrowOut(ctx, i, mode, answer)
		if err == nil || errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone) {
			break
		}
		k.Log.Info("a Warm lease is to be thrown out; it is tried again", "lease", i.name, "why", err.Error())
		k.sleep(ctx, retry)
	}
	k.Wake()
}

// awaitUntaken waits until no ADD has the lease, and keeps it from all others.
// It is false when the lease was bound, or ctx has ended.
func (k *Keeper) awaitUntaken(ctx context.Context, i *item) bool {
	for ctx.Err() == nil {
		taken, ended := k.withhold(i)
		if !taken {
			return !ended
		}
		k.sleep(ctx, takenRetry)
	}
	return false
}

// withhold keeps a lease from all ADDs, unless one has taken it.
func (k *Keeper) withhold(i *item) (taken, ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ended = i.done; !i.taken {
		i.done = true
	}
	return i.taken, ended
}

func (k *Keeper) writeThrowOut(ctx context.Context, i *item, mode v1alpha1.ConflictMode, answer segment.Answer) error {
	k.mu.Lock()
	l := i.lease
	k.mu.Unlock()
	if mode == v1alpha1.ModeObserve {
		if err := k.Leases.Delete(ctx, l); err != nil {
			return err
		}
		k.freed(l, string(segment.DoubtSpoken))
	} else if _, err := k.Leases.ThrowOut(ctx, l, lease.Evidence{MAC: answer.MAC.String(), Source: string(answer.Source)}); err != nil {
		return err
	}
	k.Metrics.Conflict(l.Spec.Pool, answer.Source)
	k.audit(audit.Conflict, l, answer.MAC.String(), "Warm: it was kept ready")
	k.Events.Eventf(l, nil, corev1.EventTypeWarning, "AddressConflict", "Warm",
		"%s was kept ready, and %s speaks for it; another address is kept instead", l.Spec.Address, answer.MAC)
	return nil
}

// endWatch ends the watch. An address that was bound meanwhile stays the pod's.
func (k *Keeper) endWatch(i *item) {
	k.mu.Lock()
	w := i.watch
	i.watch, i.proven = nil, false
	k.mu.Unlock()
	if w == nil {
		return
	}
	if err := w.End(); err != nil {
		k.Log.Error(err, "an address is watched on in the kernel")
	}
}

func (k *Keeper) sleep(ctx context.Context, d time.Duration) {
	t := k.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C():
	}
}
