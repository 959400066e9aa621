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
func (t *try) probe(ctx context.Context) outcome {
	heard, err := t.i.seg.Probe(ctx, t.i.trying.Addr, segment.ParamsOf(t.pool))
	switch {
	case err != nil || !heard.Conflict:
		return ends(err)
	case t.pool.ConflictMode() == v1alpha1.ModeObserve:
		return ends(t.observe(ctx, heard))
	}
	return t.giveWay(ctx, heard)
}

// verify claims, and asks for proof that the last holder is silent. If the record names a
// predecessor that was not proven silent, only the verdicts Fenced and Silent are sufficient.
func (t *try) verify(ctx context.Context) outcome {
	question := t.a.Self.Verification(t.pool, t.claim, t.last, t.a.Self.EndedHere(t.last))
	verdict, evidence, err := t.i.seg.Verify(ctx, question)
	if err == nil && verdict == segment.Answered && evidence.Answer.Kind.Tentative() {
		// A host that only probed for the address may be the verifier of the quarantine that this
		// take-over has just ended. It does not probe again.
		verdict, evidence, err = t.i.seg.Verify(ctx, question)
	}
	if err != nil {
		t.giveBack(ctx, verdict, err.Error())
		return ends(err)
	}
	t.verdict = verdict
	t.a.Metrics.Verification(verdict)
	mustProve := lease.NeedsVerification(&t.last.Spec, t.a.Self.Session) && t.pool.ConflictMode() == v1alpha1.ModeEnforce
	switch {
	case verdict == segment.Answered && t.pool.ConflictMode() == v1alpha1.ModeObserve:
		return ends(t.observe(ctx, evidence.Answer))
	case verdict == segment.Answered && !owner.KeepsName(&t.i.who):
		// Only a pod whose name keeps the address insists on it. A recorded predecessor stays in
		// the lease (R1).
		return t.quarantine(ctx, evidence.Answer.MAC.String(), evidence.Answer.Source)
	case verdict == segment.Answered || mustProve && !verdict.Safe():
		t.giveBack(ctx, verdict, evidence.String())
		return ends(refusal.New(refusal.TryAgain,
			"%s is kept for pod %s/%s, but its last holder is not proven silent: %s", t.address.Addr, t.i.who.Namespace, t.i.who.Pod, evidence))
	case verdict == segment.Fenced:
		e := t.i.entry(attachment.Intent)
		audit.Log(t.a.Log, audit.Fence, e.Audit(*t.i.trying, t.a.Self.Name, string(verdict)))
	}
	return outcome{}
}

// observe reports a second speaker, and leaves the address to the pod.
func (t *try) observe(ctx context.Context, heard segment.Answer) error {
	t.countConflict(heard.MAC.String(), heard.Source)
	t.a.Events.Eventf(t.d.Pod, t.pool, corev1.EventTypeWarning, "AddressConflict", "Bind",
		"%s is used by %s as well; pool %s only observes", t.i.trying.Addr, heard.MAC, t.pool.Name)
	_, err := t.a.Leases.Update(ctx, t.lease, lease.RecordConflict(lease.Evidence{MAC: heard.MAC.String(), Source: string(heard.Source)}))
	return err
}

// giveWay leaves the address to the foreign host that uses it. The lease is quarantined, or ends if the
// host answers for many addresses of the pool. If the ADD ends, its undo frees the lease: the pod never
// had the address.
func (t *try) giveWay(ctx context.Context, heard segment.Answer) outcome {
	mac := heard.MAC.String()
	action, err := t.a.Foreign.Meet(ctx, t.i.link.Parent.Index, t.pool.Name, mac)
	if err != nil {
		return ends(err)
	}
	switch action {
	case foreignhost.Quarantine:
		return t.quarantine(ctx, mac, heard.Source)
	case foreignhost.PassOver: // enough addresses are quarantined for this host
		t.countConflict(mac, heard.Source)
		return usedBy(mac, t.release(ctx))
	}
	t.countConflict(mac, heard.Source)
	return ends(refusal.New(refusal.TryAgain,
		"%s answers for more than %d addresses on parent %s, so no other address of pool %s is tried for now; "+
			"if this host is a proxy, add it to spec.conflictDetection.ignoreMACs of the pool; if it owns the addresses, exclude them by spec.excludeIPs",
		mac, foreignhost.MaxConflicts, t.i.link.Parent.Name, t.pool.Name))
}

// quarantine quarantines the lease of an address that another host uses. The
// kernel forgets the address first: a verifier of a Quarantined lease kills the
// slots that may use its address, and this slot goes on with another address.
func (t *try) quarantine(ctx context.Context, mac string, by segment.Source) outcome {
	t.countConflict(mac, by)
	t.a.Events.Eventf(t.d.Pod, t.pool, corev1.EventTypeWarning, "AddressConflict", "Bind",
		"%s is used by %s; it is quarantined and another address is tried", t.i.trying.Addr, mac)
	if err := t.a.Guards.Leases.Uninstall(t.i.link.Parent.Index, t.i.trying.Addr, t.i.slot); err != nil {
		return ends(err)
	}
	_, err := t.a.Leases.Update(ctx, t.lease, lease.QuarantineConflict(lease.Evidence{MAC: mac, Source: string(by)}))
	return usedBy(mac, err)
}

// usedBy is the outcome after an address was left to another host, or err if that failed.
func usedBy(mac string, err error) outcome {
	if err != nil {
		return ends(err)
	}
	return outcome{lost, fmt.Errorf("it is used by %s", mac)}
}

// countConflict counts and audits a second speaker.
func (t *try) countConflict(mac string, by segment.Source) {
	e := t.i.entry(attachment.Intent)
	t.a.Metrics.Conflict(t.pool.Name, by)
	audit.Log(t.a.Log, audit.Conflict, e.Audit(*t.i.trying, t.a.Self.Name, "speaker "+mac))
}

// giveBack quarantines a lease again after its take-over failed. If the write fails, the journal
// records it, and the undo writes later. An address that was proven before, and for which no host
// answered, is still proven: the undo ends its lease as a DEL does.
func (t *try) giveBack(ctx context.Context, verdict segment.Verdict, why string) {
	if t.lease.Spec.Previous == nil && verdict != segment.Answered {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attachment.UndoTimeout)
	defer cancel()
	if _, err := t.a.Leases.Update(ctx, t.lease, lease.Unverified(why)); err != nil {
		t.a.Log.Info("the undo quarantines the address", "lease", t.lease.Name, "why", err.Error())
	}
}
