package holder

import (
	"context"
	"errors"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/audit"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// exhaustedFirst and exhaustedMost are how soon an ADD looks again whether a
	// full pool has got an address back.
	exhaustedFirst = 50 * time.Millisecond
	exhaustedMost  = 2 * time.Second
	// answerMargin is kept back of an ADD's deadline for the answer.
	answerMargin = 3 * time.Second
)

// bindFree gets a free address. A pool that is full only because leases in it
// are Warm or being verified is waited for, since the runtime's own retry is slow.
func (a *adding) bindFree(ctx context.Context, f ipam.Family) (boundAddress, error) {
	missed := false
	for wait := exhaustedFirst; ; wait = min(2*wait, exhaustedMost) {
		b, err := a.tryFree(ctx, f)
		var none *ipam.NoPoolError
		if !errors.As(err, &none) || !none.Exhausted() {
			return b, err
		}
		if b, ok, err := a.bindLast(ctx, f); ok || err != nil {
			return b, err
		}
		coming, comingErr := a.h.comingFree(ctx, f)
		switch {
		case comingErr != nil:
			return boundAddress{}, comingErr
		case coming == 0 && missed:
			return boundAddress{}, err
		case coming == 0:
			// What was coming may have come between the try and the count.
			missed = true
		case !a.h.waitFor(ctx, wait):
			return boundAddress{}, crowded(err, coming)
		}
	}
}

// tryFree gets an address that nobody was heard to use lately, or, where there
// is none, one whose speaker may have ended since: the probe decides.
func (a *adding) tryFree(ctx context.Context, f ipam.Family) (boundAddress, error) {
	b, err := a.create(ctx, f, func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return a.h.Sighted(a.link.ParentIndex, addr) })
	var none *ipam.NoPoolError
	if errors.As(err, &none) && none.Exhausted() {
		return a.create(ctx, f, nil)
	}
	return b, err
}

// create creates leases in rotating order until one stands the probe (R4).
func (a *adding) create(ctx context.Context, f ipam.Family, sighted func(*v1alpha1.IPPool, netip.Addr) bool) (boundAddress, error) {
	intents := len(a.entry.Addresses)
	_, pool, err := a.h.Allocator.OnDemand(ctx, allocate.Wish{
		Family: f,
		Parent: a.link.Parent,
		Holder: a.who,
		// For the time when the pod is gone, and its StatefulSet with it.
		Retention: recordedRetention(a.pod),
		Share:     a.h.Share(),
		Sighted:   sighted,
		Taken:     a.heldHere(),
		Before: func(_ context.Context, pool *v1alpha1.IPPool, addr netip.Addr) error {
			// The intent is on disk before the lease exists: a crash in between leaks nothing.
			a.entry.Addresses = append(a.entry.Addresses[:intents], addressOf(pool, addr))
			return a.intend()
		},
		Try: func(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease) (allocate.Outcome, error) {
			token, err := lease.Token(l)
			if err != nil {
				return allocate.Conflict, err
			}
			address := &a.entry.Addresses[intents]
			address.LeaseUID, address.Token = string(l.UID), token
			outcome, err := a.prove(ctx, pool, l, *address)
			if err == nil && outcome == allocate.Conflict {
				a.entry.Addresses = a.entry.Addresses[:intents]
			}
			return outcome, err
		},
	})
	if err != nil {
		a.dropIntent(intents, err)
		return boundAddress{}, err
	}
	return boundAddress{pool: pool, address: a.entry.Addresses[intents]}, nil
}

// dropIntent forgets the intent at index i of a search that failed, unless a
// lease was created for it, or may have been: what nobody was asked for needs
// no API server to be undone.
func (a *adding) dropIntent(i int, err error) {
	if len(a.entry.Addresses) > i && a.entry.Addresses[i].LeaseUID == "" && !errors.Is(err, lease.ErrUncertain) {
		a.entry.Addresses = a.entry.Addresses[:i]
	}
}

func addressOf(pool *v1alpha1.IPPool, addr netip.Addr) journal.Address {
	return journal.Address{
		Addr: addr, Pool: pool.Name, Network: pool.Spec.Network, LeaseName: v1alpha1.LeaseName(pool.Spec.Network, addr),
	}
}

// prove guards, probes and claims the address of a new lease, in this order:
// a stranger without a record answers the probe and is never claimed against (R4).
func (a *adding) prove(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, address journal.Address) (allocate.Outcome, error) {
	if e, _, held := a.h.Holder(keyOf(&a.entry, address)); held {
		// A pod of this node whose record was lost: installing the address for
		// this one would mute it before it can answer.
		return a.setAside(ctx, pool, l, address, e.MAC, segment.SourceProbe)
	}
	c, err := a.install(pool, address)
	if err != nil {
		return allocate.Conflict, err
	}
	heard, err := a.seg.Probe(ctx, address.Addr, ProbeParams(pool))
	if err != nil {
		return allocate.Conflict, err
	}
	if heard.Conflict {
		outcome, err := a.conflict(ctx, pool, l, address, heard)
		if err != nil || outcome == allocate.Conflict {
			return outcome, err
		}
	}
	if err := a.seg.ClaimAndConfirm(ctx, c); err != nil {
		return allocate.Conflict, err
	}
	return allocate.Granted, nil
}

// conflict deals with an address that somebody answers for. A pool in mode
// Observe only reports it.
func (a *adding) conflict(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, address journal.Address, heard segment.Answer) (allocate.Outcome, error) {
	if pool.ConflictMode() != v1alpha1.ModeObserve {
		return a.setAside(ctx, pool, l, address, heard.MAC.String(), heard.Source)
	}
	return allocate.Granted, a.observe(ctx, pool, l, address, heard)
}

// observe reports a second speaker and goes on.
func (a *adding) observe(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, address journal.Address, heard segment.Answer) error {
	h := a.h
	h.Metrics.Conflict(pool.Name, heard.Source)
	h.audit(audit.Conflict, &a.entry, address, "speaker "+heard.MAC.String())
	h.Events.Eventf(a.pod, pool, corev1.EventTypeWarning, "AddressConflict", "Bind",
		"%s is used by %s as well; pool %s only observes", address.Addr, heard.MAC, pool.Name)
	_, err := h.Leases.RecordConflict(ctx, l, lease.Evidence{MAC: heard.MAC.String(), Source: string(heard.Source)})
	return err
}

// setAside quarantines an address that somebody else speaks for. The kernel
// lets go of it first: a verifier of a Quarantined lease kills the slots that
// speak for its address, and this one goes on with another.
func (a *adding) setAside(ctx context.Context, pool *v1alpha1.IPPool, l *v1alpha1.IPLease, address journal.Address, mac string, source segment.Source) (allocate.Outcome, error) {
	h := a.h
	h.Metrics.Conflict(pool.Name, source)
	h.audit(audit.Conflict, &a.entry, address, "speaker "+mac)
	h.Events.Eventf(a.pod, pool, corev1.EventTypeWarning, "AddressConflict", "Bind",
		"%s is used by %s; it is set aside and another address is tried", address.Addr, mac)
	if err := h.uninstall(keyOf(&a.entry, address), a.entry.Slot); err != nil {
		return allocate.Conflict, err
	}
	_, err := h.Leases.QuarantineConflict(ctx, l, lease.Evidence{MAC: mac, Source: string(source)})
	return allocate.Conflict, err
}

// heldHere returns which addresses of this segment pods of this node hold: the
// hint that spares a living pod without a record the collision.
func (a *adding) heldHere() func(*v1alpha1.IPPool, netip.Addr) bool {
	held := map[netip.Addr]bool{}
	for e := range a.h.Bound() {
		for _, address := range e.Addresses {
			if e.ParentIndex == a.entry.ParentIndex {
				held[address.Addr] = true
			}
		}
	}
	return func(_ *v1alpha1.IPPool, addr netip.Addr) bool { return held[addr] }
}

// waitFor waits d, unless the call's deadline is too close for it.
func (h *Holders) waitFor(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(h.Clock.Now()) < d+answerMargin {
		return false
	}
	t := h.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}
