// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// candidate is an address of a Source, with the API write that gives it to the pod.
type candidate struct {
	pool    *v1alpha1.IPPool
	address attachment.Address
	// last is the lease as the last holder left it, nil if there is none.
	last *v1alpha1.IPLease
	// awaitRelease waits until the last holder releases the address, and reads last again. It may be nil.
	awaitRelease func(context.Context, *candidate) outcome
	// write also returns the evidence against an address that was watched. After an error other than
	// lease.ErrUncertain the pod has no lease of the address. It is nil only for the proof byHandOver.
	write func(context.Context, *candidate) (*v1alpha1.IPLease, doubt, error)
	// over ends the try. written: the lease was changed. It may be nil.
	over func(written bool)
}

// doubt is evidence against an address that came up while its lease was written.
type doubt struct {
	segment.Doubt
	who segment.Answer
}

func candidateOf(pool *v1alpha1.IPPool, addr netip.Addr) candidate {
	return candidate{pool: pool, address: attachment.Address{
		Addr: addr, Pool: pool.Name, Network: pool.Spec.Network, LeaseName: v1alpha1.LeaseName(pool.Spec.Network, addr),
	}}
}

// try is one try to win the address of a candidate.
type try struct {
	a *Acquirer
	d *round
	s *search
	i *iface
	candidate
	won   Won
	lease *v1alpha1.IPLease
	// taken: another pod has the lease.
	taken bool
	claim segment.Claim
	// doubt is the evidence against an address that was watched.
	doubt doubt
	// verdict about the last holder.
	verdict segment.Verdict
	// gateway waits for the answer of the pool's gateway.
	gateway func() error
}

// isWatched reports whether the address was watched until now, and no doubt came up.
func (t *try) isWatched() bool {
	return t.s.source.proof == byWatch && t.doubt.Doubt == segment.DoubtNone
}

// isProbed reports whether a probe proves the address.
func (t *try) isProbed() bool {
	return t.s.source.proof == byProbe || t.s.source.proof == byWatch && !t.isWatched()
}

// run gives the pod the address of the candidate. The order is the guarantee, and the same for each
// source. The address is bound on disk once the interface has one of each family, and announced after
// the answer.
func (t *try) run(ctx context.Context) (Won, outcome) {
	if !t.s.source.proof.fits(&t.candidate) {
		return Won{}, ends(fmt.Errorf("the proof of source %q does not fit its candidate %s", t.s.source.Name, t.address.Addr))
	}
	if t.over != nil {
		defer func() { t.over(t.lease != nil || t.taken) }()
	}
	t.d.Lap("candidate")
	for _, step := range []struct {
		name string
		do   func(context.Context) outcome
	}{
		{"route", t.routed},      // the routes of the pool divert no packets; its gateway is being asked
		{"release", t.released},  // the last holder has released the address
		{"intent", t.intended},   // the intent is on disk, and the guard is being attached
		{"lease", t.owned},       // the API server agrees (R5), the guard enforces, and the kernel has the token
		{"proof", t.proven},      // no other host speaks (R4, R8)
		{"claim", t.claimed},     // other speakers are fenced, and no newer claim exists (R10)
		{"confirm", t.confirmed}, // the lease says that the last holder is silent
		{"gateway", t.reached},   // the gateway answers
	} {
		o := step.do(ctx)
		t.d.Lap(step.name)
		if o.result != won {
			return Won{}, o
		}
	}
	t.won.Pool, t.won.Address = t.pool, *t.i.trying
	if t.isWatched() {
		t.won.Unclaimed = &t.claim
	}
	return t.won, outcome{}
}

func (t *try) reached(context.Context) outcome { return failed(poolRejected, t.gateway()) }

// released waits for the last holder.
func (t *try) released(ctx context.Context) outcome {
	if t.awaitRelease == nil {
		return outcome{}
	}
	return t.awaitRelease(ctx, &t.candidate)
}

// intended: if the agent crashes after this, no lease leaks.
func (t *try) intended(ctx context.Context) outcome {
	if o := t.i.chooseMAC(ctx, t.pool, t.address.Addr, t.d.guestsMAC()); o.result != won {
		return o
	}
	t.i.trying = &t.address
	err := t.i.journal()
	if err != nil {
		t.i.trying = nil
	}
	return ends(err)
}

// owned writes the lease, and lets the slot use the address. If there was a last holder, its lease
// is locked against a verifier, and the slots that may use the address are killed.
func (t *try) owned(ctx context.Context) outcome {
	if t.last != nil {
		defer t.a.Attachments.Calls.LockLease(t.last.Name)()
		t.i.sharedMAC = t.i.sharedMAC || bytes.Equal(t.last.LastMAC(), t.i.link.MAC)
	}
	if o := t.written(ctx); o.result != won {
		return o
	}
	if t.last != nil {
		if err := t.a.Releaser.KillSpeakers(t.lease, t.i.slot); err != nil {
			return ends(err)
		}
	}
	if err := t.i.guard(); err != nil {
		return ends(err)
	}
	t.claim = t.a.Self.Claim(t.pool.ConflictMode(), t.address, t.last)
	e := t.i.entry(attachment.Intent)
	return ends(t.a.Guards.Leases.Install(&e, *t.i.trying))
}

// written carries out the candidate's write.
func (t *try) written(ctx context.Context) outcome {
	if t.write == nil {
		return outcome{}
	}
	t.won.since = t.a.Clock.Now()
	t.i.who.Guarded = !t.i.link.Unguarded &&
		(t.i.link.Device == "" || !t.pool.AllowsDirectTransmit() && t.a.Guards.Kernel.Sockets.Unguarded() == nil)
	l, found, err := t.write(ctx, &t.candidate)
	t.taken = t.last == nil && (errors.Is(err, lease.ErrTaken) || errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone))
	if err != nil && t.s.source.proof == byProbe && !errors.Is(err, lease.ErrUncertain) {
		t.i.trying = nil // nothing was written: the undo needs no API server for it
	}
	if t.taken {
		return outcome{lost, err}
	}
	if err != nil {
		return ends(err)
	}
	t.lease, t.doubt = l, found
	token, err := lease.Token(l)
	if err != nil {
		return ends(err)
	}
	t.i.trying.LeaseUID, t.i.trying.Token = string(l.UID), token
	if t.last != nil {
		return outcome{}
	}
	if o := t.s.confirmLimit(ctx, t.pool, l); o.result != won {
		return o
	}
	return t.withoutRival(ctx)
}

// withoutRival looks for a known speaker. Installing the address would mute that speaker before it
// can answer a probe.
func (t *try) withoutRival(ctx context.Context) outcome {
	if t.doubt.Doubt == segment.DoubtSpoken && t.pool.ConflictMode() != v1alpha1.ModeObserve {
		return t.giveWay(ctx, t.doubt.who)
	}
	if !t.isProbed() {
		return outcome{}
	}
	if living, _, held := t.a.Attachments.Holder(t.i.link.Parent.Index, t.address.Addr); held { // its record was lost
		return t.quarantine(ctx, living.MAC, segment.SourceProbe)
	}
	return outcome{}
}

func (t *try) proven(ctx context.Context) outcome {
	switch {
	case t.isProbed():
		return t.probe(ctx)
	case t.s.source.proof == byLastHolder:
		return t.verify(ctx)
	}
	return outcome{}
}

// claimed claims the address, unless the claim follows the answer or the last holder still has the
// address. Without a claim key, a probe alone protects the address.
func (t *try) claimed(ctx context.Context) outcome {
	if t.isWatched() || t.s.source.proof == byHandOver {
		return outcome{}
	}
	err := t.i.seg.ClaimAndConfirm(ctx, t.claim)
	if t.isProbed() && errors.Is(err, segment.ErrNoKey) {
		return outcome{}
	}
	if err != nil && t.last != nil {
		t.giveBack(ctx, segment.Unknown, err.Error())
	}
	if errors.Is(err, segment.ErrFenced) {
		return outcome{rejected, err}
	}
	return ends(err)
}

// confirmed ends the take-over of an address from its last holder.
func (t *try) confirmed(ctx context.Context) outcome {
	if t.s.source.proof == byHandOver {
		t.a.Events.Eventf(t.d.Pod, nil, corev1.EventTypeNormal, "AddressAwaitsMigration", "Bind",
			"%s is in use by pod %s on node %s; this pod is mute until the migration hands the address over",
			t.address.Addr, t.s.kept.Spec.Holder.Pod, t.s.kept.Spec.NodeName)
		return outcome{}
	}
	if t.last == nil {
		return outcome{}
	}
	if _, err := t.a.Leases.Update(ctx, t.lease, lease.Confirm); err != nil {
		return ends(err)
	}
	t.a.Events.Eventf(t.d.Pod, nil, corev1.EventTypeNormal, "AddressTakenOver", "Bind", "%s is kept for the pod and was taken over: %s", t.address.Addr, t.verdict)
	return outcome{}
}

// passOver ends a try that was rejected: the ADD goes on with another address.
func (t *try) passOver(ctx context.Context, why error) error {
	t.a.Log.Info("an address is passed over", "address", t.address.Addr, "pool", t.pool.Name,
		"pod", t.i.who.Namespace+"/"+t.i.who.Pod, "why", why.Error())
	if t.lease != nil {
		if err := t.release(ctx); err != nil {
			return errors.Join(why, err)
		}
	}
	t.i.trying = nil
	return nil
}

// release frees the lease of an address that the pod does not get, while the ADD goes on.
func (t *try) release(ctx context.Context) error {
	e := t.i.entry(attachment.Intent)
	if err := t.a.Releaser.GiveUp(ctx, &e, *t.i.trying); err != nil {
		return err
	}
	t.i.trying = nil
	return t.i.journal()
}
