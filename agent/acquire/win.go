// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// win gives the pod the address of a candidate. The order is the guarantee, and the same for each
// source. The address is bound on disk once the interface has one of each family (record), and
// announced after the answer (Answered).
func (s *search) win(ctx context.Context, c candidate) (Bound, outcome) {
	if !s.proof.fits(&c) {
		return Bound{}, ends(fmt.Errorf("the proof of source %q does not fit its candidate %s", s.Name, c.address.Addr))
	}
	a := &attempt{search: s, candidate: c}
	if c.over != nil {
		defer func() { a.over(a.lease != nil || a.lost) }()
	}
	a.Lap("candidate")
	for _, step := range []struct {
		name string
		do   func(context.Context) outcome
	}{
		{"route", a.allowed},     // the routes of the pool divert no packets
		{"release", a.released},  // the last holder has released the address
		{"intent", a.intended},   // the intent is on disk, and the guard is being attached
		{"lease", a.owned},       // the API server agrees (R5), the guard enforces, and the kernel has the token
		{"proof", a.proven},      // no other host speaks (R4, R8)
		{"claim", a.claimed},     // other speakers are fenced, and no newer claim exists (R10)
		{"confirm", a.confirmed}, // the lease says that the last holder is silent
	} {
		o := step.do(ctx)
		a.Lap(step.name)
		if o.result != won {
			return Bound{}, o
		}
	}
	b := Bound{Pool: a.pool, Address: *a.Trying, Since: a.since}
	if a.isWatched() {
		b.Unclaimed = &a.claim
	}
	return b, outcome{}
}

func (a *attempt) allowed(ctx context.Context) outcome {
	if o := a.checkRoutes(ctx, a.family, a.pool); o.result != won {
		return o
	}
	a.askGateway(ctx, a.pool)
	return outcome{}
}

func (a *attempt) released(ctx context.Context) outcome {
	if a.awaitRelease == nil {
		return outcome{}
	}
	return a.awaitRelease(ctx, &a.candidate)
}

// intended: if the agent crashes after this, no lease leaks.
func (a *attempt) intended(ctx context.Context) outcome {
	err := a.intend(ctx, a.pool, a.address)
	if err != nil {
		a.Trying = nil
	}
	return ends(err)
}

// owned writes the lease, and lets the slot use the address. If there was a last holder, its lease
// is locked against a verifier, and the slots that may use the address are killed.
func (a *attempt) owned(ctx context.Context) outcome {
	if a.last != nil {
		defer a.h.Journal.Calls.LockLease(a.last.Name)()
		a.sharedMAC = a.sharedMAC || bytes.Equal(a.last.LastMAC(), a.Link.MAC)
	}
	if o := a.written(ctx); o.result != won {
		return o
	}
	if a.last != nil {
		if err := a.h.KillSpeakers(a.lease, a.Slot); err != nil {
			return ends(err)
		}
	}
	if err := a.Guard(); err != nil {
		return ends(err)
	}
	a.claim = a.h.Proof.Claim(a.pool, *a.Trying, a.last)
	e := a.Entry(attachment.Intent)
	return ends(a.h.Guards.Install(&e, *a.Trying))
}

// written carries out the candidate's write.
func (a *attempt) written(ctx context.Context) outcome {
	if a.write == nil {
		return outcome{}
	}
	a.since = a.h.Clock.Now()
	a.Who.Guarded = !a.Link.Unguarded && (a.Link.Device == "" || !a.pool.AllowsDirectTransmit() && a.h.Guards.Kernel.SocketsUnguarded() == nil)
	l, found, err := a.write(ctx, &a.candidate)
	a.lost = a.last == nil && (errors.Is(err, lease.ErrTaken) || errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone))
	if err != nil && a.proof == byProbe && !errors.Is(err, lease.ErrUncertain) {
		a.Trying = nil // nothing was written: the undo needs no API server for it
	}
	if a.lost {
		return outcome{notAddress, err}
	}
	if err != nil {
		return ends(err)
	}
	a.lease, a.doubt = l, found
	if err := a.leased(l); err != nil || a.last != nil {
		return ends(err)
	}
	if o := a.confirmLimit(ctx, a.pool, l); o.result != won {
		return o
	}
	return a.withoutRival(ctx)
}

// withoutRival looks for a known speaker. Installing the address would mute that speaker before it
// can answer a probe.
func (a *attempt) withoutRival(ctx context.Context) outcome {
	if a.doubt.Doubt == segment.DoubtSpoken && a.pool.ConflictMode() != v1alpha1.ModeObserve {
		return a.giveWay(ctx, a.doubt.who)
	}
	if !a.isProbed() {
		return outcome{}
	}
	if living, _, held := a.h.Journal.Holder(a.Link.Parent.Index, a.Trying.Addr); held { // its record was lost
		return a.quarantine(ctx, living.MAC, segment.SourceProbe)
	}
	return outcome{}
}

func (a *attempt) proven(ctx context.Context) outcome {
	switch {
	case a.isProbed():
		return a.probe(ctx)
	case a.proof == byLastHolder:
		return a.verify(ctx)
	}
	return outcome{}
}

// claimed claims the address, unless the claim follows the answer or the last holder still has the
// address. Without a claim key, a probe alone protects the address.
func (a *attempt) claimed(ctx context.Context) outcome {
	if a.isWatched() || a.proof == byHandOver {
		return outcome{}
	}
	err := a.Seg.ClaimAndConfirm(ctx, a.claim)
	if a.isProbed() && errors.Is(err, segment.ErrNoKey) {
		return outcome{}
	}
	if err != nil && a.last != nil {
		a.giveBack(ctx, segment.Unknown, err.Error())
	}
	return ends(err)
}

// confirmed ends the take-over of an address from its last holder.
func (a *attempt) confirmed(ctx context.Context) outcome {
	if a.proof == byHandOver {
		a.h.Events.Eventf(a.Pod, nil, corev1.EventTypeNormal, "AddressAwaitsMigration", "Bind",
			"%s is in use by pod %s on node %s; this pod is mute until the migration hands the address over",
			a.address.Addr, a.kept.Spec.Holder.Pod, a.kept.Spec.NodeName)
		return outcome{}
	}
	if a.last == nil {
		return outcome{}
	}
	if _, err := a.h.Leases.Update(ctx, a.lease, lease.Confirm); err != nil {
		return ends(err)
	}
	a.h.Events.Eventf(a.Pod, nil, corev1.EventTypeNormal, "AddressTakenOver", "Bind", "%s is kept for the pod and was taken over: %s", a.address.Addr, a.verdict)
	return outcome{}
}
