// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"bytes"
	"context"
	"errors"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/owner"
)

// keptRetry is the pause before an ADD checks again whether its kept address was quarantined.
const keptRetry = 200 * time.Millisecond

// errLeftToForeign ends the take-over of an address that a foreign host uses. The pod gets another
// address.
var errLeftToForeign = errors.New("a foreign host uses the kept address")

// takeOver binds the address that is kept for this pod. It waits while the address is still bound
// elsewhere. If it stays bound there, the ADD fails. It binds another address only if the lease has
// ended, or if a foreign host uses the address of a pod whose name keeps none.
func (a *adding) takeOver(ctx context.Context, f ipam.Family, l *v1alpha1.IPLease) (boundAddress, error) {
	addr := l.Spec.Addr()
	pool := poolOf(f, l)
	if pool == nil { // not reached: decideKept takes only what serves
		return boundAddress{}, refusal.New(refusal.NoPool, "%s is kept for pod %s/%s, but its pool %s does not serve the pod",
			addr, a.who.Namespace, a.who.Pod, l.Spec.Pool)
	}
	if err := a.checkRoutes(ctx, f, pool); err != nil {
		return boundAddress{}, err
	}
	a.askGateway(ctx, pool)
	if lease.StandsBehind(&a.who, owner.IsTarget(a.pod), a.h.Node, &l.Spec) {
		return a.standBehind(ctx, f, l)
	}
	for a.boundElsewhere(l) {
		if !waitFor(ctx, a.h.Clock, keptRetry) {
			return boundAddress{}, refusal.New(refusal.TryAgain,
				"%s is kept for pod %s/%s and still bound to its predecessor on node %s", addr, a.who.Namespace, a.who.Pod, l.Spec.NodeName)
		}
		var err error
		l, err = a.h.Leases.Get(ctx, l.Name)
		if errors.Is(err, lease.ErrGone) {
			return a.another(ctx, f)
		}
		if err != nil {
			return boundAddress{}, err
		}
	}
	address := addressOf(pool, addr)
	address.Static, address.Kept = a.keeps(pool), true
	b, err := a.take(ctx, pool, l, address)
	if errors.Is(err, errLeftToForeign) {
		return a.another(ctx, f)
	}
	return b, err
}

// another binds another address than the kept one.
func (a *adding) another(ctx context.Context, f ipam.Family) (boundAddress, error) {
	f, err := f.Open()
	if err != nil {
		return boundAddress{}, err
	}
	return search{adding: a, family: f}.find(ctx)
}

// boundElsewhere reports whether only the controller can end the present binding.
func (a *adding) boundElsewhere(l *v1alpha1.IPLease) bool {
	return l.Spec.State == v1alpha1.StateBound &&
		(l.Spec.NodeName != a.h.Node || l.Spec.Holder.PodUID != a.who.PodUID)
}

// take writes the take-over, claims, and probes. If the record names a predecessor that
// was not proven silent, only the verdicts Fenced and Silent are sufficient.
func (a *adding) take(ctx context.Context, pool *v1alpha1.IPPool, old *v1alpha1.IPLease, address journal.Address) (boundAddress, error) {
	h := a.h
	mustProve := lease.NeedsVerification(&old.Spec, h.Session) && pool.ConflictMode() == v1alpha1.ModeEnforce
	if err := a.intend(ctx, pool, address); err != nil {
		return boundAddress{}, err
	}
	last := previousMAC(old)
	a.sharedMAC = a.sharedMAC || bytes.Equal(last, a.link.MAC)
	l, c, err := a.writeTakeOver(ctx, pool, old)
	if err != nil {
		return boundAddress{}, err
	}
	c.PreviousMAC, c.PreviousToken = last, old.LastToken()
	verdict, evidence, err := a.verify(ctx, segment.Verification{
		Claim: c, Probe: segment.ParamsOf(pool), Gateway: segment.GatewayOf(pool), SlotDead: h.endedHere(old),
		Asserted: lease.Asserted(&old.Spec), OthersShare: h.OthersShare(),
	})
	if err != nil {
		a.giveBack(ctx, l, verdict, err.Error())
		return boundAddress{}, err
	}
	h.Metrics.Verification(verdict)
	switch {
	case verdict == segment.Answered && pool.ConflictMode() == v1alpha1.ModeObserve:
		if err := a.observe(ctx, pool, l, evidence.Answer); err != nil {
			return boundAddress{}, err
		}
	case verdict == segment.Answered && !owner.KeepsName(&a.who):
		// Only a name insists on its address. A recorded predecessor stays in the lease (R1).
		if err := a.quarantine(ctx, pool, l, evidence.Answer.MAC.String(), evidence.Answer.Source); err != nil {
			return boundAddress{}, err
		}
		return boundAddress{}, errLeftToForeign
	case verdict == segment.Answered || mustProve && !verdict.Safe():
		a.giveBack(ctx, l, verdict, evidence.String())
		return boundAddress{}, refusal.New(refusal.TryAgain,
			"%s is kept for pod %s/%s, but its last holder is not proven silent: %s", address.Addr, a.who.Namespace, a.who.Pod, evidence)
	}
	if verdict == segment.Fenced {
		e := a.entry(journal.Intent)
		h.Audit(audit.Fence, &e, *a.trying, string(verdict))
	}
	if err := a.seg.ClaimAndConfirm(ctx, c); err != nil {
		a.giveBack(ctx, l, segment.Unknown, err.Error())
		return boundAddress{}, err
	}
	if _, err = h.Leases.Confirm(ctx, l); err != nil {
		return boundAddress{}, err
	}
	h.Events.Eventf(a.pod, nil, corev1.EventTypeNormal, "AddressTakenOver", "Bind", "%s is kept for the pod and was taken over: %s", address.Addr, verdict)
	return boundAddress{pool: pool, address: *a.trying}, nil
}

// verify looks for proof. A host that only probed for the address may be the verifier
// of the quarantine that this take-over has just ended. It does not probe again.
func (a *adding) verify(ctx context.Context, v segment.Verification) (segment.Verdict, segment.Evidence, error) {
	verdict, evidence, err := a.seg.Verify(ctx, v)
	if err == nil && verdict == segment.Answered && evidence.Answer.Kind.Tentative() {
		return a.seg.Verify(ctx, v)
	}
	return verdict, evidence, err
}

// previousMAC returns the MAC of the last holder, or nil if it is not recorded. It may be the MAC of
// the new interface.
func previousMAC(old *v1alpha1.IPLease) net.HardwareAddr {
	text := old.Spec.Holder.MAC
	if p := old.Spec.Previous; p != nil && p.MAC != "" {
		text = p.MAC
	}
	mac, err := net.ParseMAC(text)
	if err != nil {
		return nil
	}
	return mac
}

// writeTakeOver binds the lease to this pod. From then on its slot may use the address, and older
// slots are killed.
func (a *adding) writeTakeOver(ctx context.Context, pool *v1alpha1.IPPool, old *v1alpha1.IPLease) (*v1alpha1.IPLease, segment.Claim, error) {
	defer a.h.leases.lock(old.Name)()
	request := lease.Request{
		Pool: pool.Name, Network: pool.Spec.Network, Addr: a.trying.Addr, Parent: a.link.Parent, Holder: a.who,
		Retention: a.retention(pool),
	}
	l, err := a.h.Leases.TakeOver(ctx, old, request)
	if errors.Is(err, lease.ErrNotMine) {
		// The DEL of the older sandbox may have ended meanwhile.
		kept, getErr := a.h.Leases.Get(ctx, old.Name)
		if getErr == nil && kept.Spec.State == v1alpha1.StateRetained {
			l, err = a.h.Leases.TakeOver(ctx, kept, request)
		}
	}
	if err != nil {
		return nil, segment.Claim{}, err
	}
	if err := a.leased(l); err != nil {
		return nil, segment.Claim{}, err
	}
	if err := a.h.killSpeakers(l, a.slot); err != nil {
		return nil, segment.Claim{}, err
	}
	c, err := a.install(pool)
	return l, c, err
}

// giveBack quarantines a lease again after its take-over failed. If the write fails, the journal
// records it, and the undo writes later. An address that was proven before, and for which no host
// answered, is still proven: the undo ends its lease as a DEL does.
func (a *adding) giveBack(ctx context.Context, l *v1alpha1.IPLease, verdict segment.Verdict, why string) {
	if l.Spec.Previous == nil && verdict != segment.Answered {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if _, err := a.h.Leases.Unverified(ctx, l, why); err != nil {
		a.h.Log.Info("the undo quarantines the address", "lease", l.Name, "why", err.Error())
	}
}
