// SPDX-License-Identifier: Apache-2.0

package acquire

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/refusal"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/foreignhost"
	"github.com/fenceline/fenceline/internal/owner"
)

// probe asks the segment for an address that no host should use.
func (a *attempt) probe(ctx context.Context) outcome {
	heard, err := a.Seg.Probe(ctx, a.Trying.Addr, segment.ParamsOf(a.pool))
	switch {
	case err != nil || !heard.Conflict:
		return ends(err)
	case a.pool.ConflictMode() == v1alpha1.ModeObserve:
		return ends(a.observe(ctx, heard))
	}
	return a.giveWay(ctx, heard)
}

// verify claims, and asks for proof that the last holder is silent. If the record names a
// predecessor that was not proven silent, only the verdicts Fenced and Silent are sufficient.
func (a *attempt) verify(ctx context.Context) outcome {
	question := a.h.Proof.Verification(a.pool, a.claim, a.last, a.h.Proof.EndedHere(a.last))
	verdict, evidence, err := a.Seg.Verify(ctx, question)
	if err == nil && verdict == segment.Answered && evidence.Answer.Kind.Tentative() {
		// A host that only probed for the address may be the verifier of the quarantine that this
		// take-over has just ended. It does not probe again.
		verdict, evidence, err = a.Seg.Verify(ctx, question)
	}
	if err != nil {
		a.giveBack(ctx, verdict, err.Error())
		return ends(err)
	}
	a.verdict = verdict
	a.h.Metrics.Verification(verdict)
	mustProve := lease.NeedsVerification(&a.last.Spec, a.h.Session) && a.pool.ConflictMode() == v1alpha1.ModeEnforce
	switch {
	case verdict == segment.Answered && a.pool.ConflictMode() == v1alpha1.ModeObserve:
		return ends(a.observe(ctx, evidence.Answer))
	case verdict == segment.Answered && !owner.KeepsName(&a.Who):
		// Only a pod whose name keeps the address insists on it. A recorded predecessor stays in
		// the lease (R1).
		return a.quarantine(ctx, evidence.Answer.MAC.String(), evidence.Answer.Source)
	case verdict == segment.Answered || mustProve && !verdict.Safe():
		a.giveBack(ctx, verdict, evidence.String())
		return ends(refusal.New(refusal.TryAgain,
			"%s is kept for pod %s/%s, but its last holder is not proven silent: %s", a.address.Addr, a.Who.Namespace, a.Who.Pod, evidence))
	case verdict == segment.Fenced:
		e := a.Entry(attachment.Intent)
		a.h.Audit(audit.Fence, &e, *a.Trying, string(verdict))
	}
	return outcome{}
}

// observe reports a second speaker, and leaves the address to the pod.
func (a *attempt) observe(ctx context.Context, heard segment.Answer) error {
	a.countConflict(heard.MAC.String(), heard.Source)
	a.h.Events.Eventf(a.Pod, a.pool, corev1.EventTypeWarning, "AddressConflict", "Bind",
		"%s is used by %s as well; pool %s only observes", a.Trying.Addr, heard.MAC, a.pool.Name)
	_, err := a.h.Leases.Update(ctx, a.lease, lease.RecordConflict(lease.Evidence{MAC: heard.MAC.String(), Source: string(heard.Source)}))
	return err
}

// giveWay leaves the address to the foreign host that uses it. The lease is quarantined, or ends if the
// host answers for many addresses of the pool. If the ADD ends, its undo frees the lease: the pod never
// had the address.
func (a *attempt) giveWay(ctx context.Context, heard segment.Answer) outcome {
	mac := heard.MAC.String()
	action, err := a.h.Foreign.Meet(ctx, a.Link.Parent.Index, a.pool.Name, mac)
	if err != nil {
		return ends(err)
	}
	switch action {
	case foreignhost.Quarantine:
		return a.quarantine(ctx, mac, heard.Source)
	case foreignhost.PassOver: // enough addresses are quarantined for this host
		a.countConflict(mac, heard.Source)
		return lostTo(mac, a.release(ctx))
	}
	a.countConflict(mac, heard.Source)
	return ends(refusal.New(refusal.TryAgain,
		"%s answers for more than %d addresses on parent %s, so no other address of pool %s is tried for now; "+
			"if this host is a proxy, add it to spec.conflictDetection.ignoreMACs of the pool; if it owns the addresses, exclude them by spec.excludeIPs",
		mac, foreignhost.MaxConflicts, a.Link.Parent.Name, a.pool.Name))
}

// release frees the lease of an address that the pod does not get. The kernel forgets it first.
func (a *attempt) release(ctx context.Context) error {
	e := a.Entry(attachment.Intent)
	if err := a.h.Guards.Uninstall(a.Link.Parent.Index, a.Trying.Addr, a.Slot); err != nil {
		return err
	}
	return a.h.End(ctx, a.lease, &e, *a.Trying)
}

// quarantine quarantines the lease of an address that another host uses. The
// kernel forgets the address first: a verifier of a Quarantined lease kills the
// slots that may use its address, and this slot goes on with another address.
func (a *attempt) quarantine(ctx context.Context, mac string, by segment.Source) outcome {
	a.countConflict(mac, by)
	a.h.Events.Eventf(a.Pod, a.pool, corev1.EventTypeWarning, "AddressConflict", "Bind",
		"%s is used by %s; it is quarantined and another address is tried", a.Trying.Addr, mac)
	if err := a.h.Guards.Uninstall(a.Link.Parent.Index, a.Trying.Addr, a.Slot); err != nil {
		return ends(err)
	}
	_, err := a.h.Leases.Update(ctx, a.lease, lease.QuarantineConflict(lease.Evidence{MAC: mac, Source: string(by)}))
	return lostTo(mac, err)
}

// lostTo is the outcome after an address was left to another host, or err if that failed.
func lostTo(mac string, err error) outcome {
	if err != nil {
		return ends(err)
	}
	return outcome{notAddress, fmt.Errorf("it is used by %s", mac)}
}

// countConflict counts and audits a second speaker.
func (a *attempt) countConflict(mac string, by segment.Source) {
	e := a.Entry(attachment.Intent)
	a.h.Metrics.Conflict(a.pool.Name, by)
	a.h.Audit(audit.Conflict, &e, *a.Trying, "speaker "+mac)
}

// giveBack quarantines a lease again after its take-over failed. If the write fails, the journal
// records it, and the undo writes later. An address that was proven before, and for which no host
// answered, is still proven: the undo ends its lease as a DEL does.
func (a *attempt) giveBack(ctx context.Context, verdict segment.Verdict, why string) {
	if a.lease.Spec.Previous == nil && verdict != segment.Answered {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attachment.UndoTimeout)
	defer cancel()
	if _, err := a.h.Leases.Update(ctx, a.lease, lease.Unverified(why)); err != nil {
		a.h.Log.Info("the undo quarantines the address", "lease", a.lease.Name, "why", err.Error())
	}
}
