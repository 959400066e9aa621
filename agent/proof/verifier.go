// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

// Segment is the wire behind one parent. *segment.Segment implements it.
type Segment interface {
	Verify(context.Context, segment.Verification) (segment.Verdict, segment.Evidence, error)
}

// Leases is the part of *lease.Store that a verifier needs.
type Leases interface {
	Settle(context.Context, *v1alpha1.IPLease, lease.Finding, lease.Evidence) (*v1alpha1.IPLease, error)
}

// Options of a Verifier. All are required.
type Options struct {
	event.Reporter
	// Self is this node. Its OthersShare may change at any time.
	Self Node

	// Cache reads from the agent's filtered caches.
	Cache  client.Reader
	Leases Leases
	// KillHolder reads a lease past the cache and, if it is Quarantined, kills every slot of this node
	// that has its address. dead reports whether the last holder was a pod of this session, which is
	// then proven fenced.
	KillHolder func(ctx context.Context, name string) (l *v1alpha1.IPLease, dead bool, err error)
	// Adopt tries to adopt the pod of a hold of this node.
	Adopt func(ctx context.Context, name string) (Adoption, error)
	// IsStandby reports whether a pod of this node waits for its turn to take the lease over.
	IsStandby func(lease string) bool
	// OpenSegment returns the segment on which this node reaches an address of a pool. guessed: it
	// was chosen only by the name of the parent on the last holder's node.
	OpenSegment func(pool *v1alpha1.IPPool, last segment.LastHolder) (s Segment, guessed bool, err error)

	// Verified counts verdicts, Conflict counts answers.
	Verified func(segment.Verdict)
	Conflict func(pool string, source segment.Source)
}

// Adoption is what became of a try to adopt the pod of a hold.
type Adoption struct {
	// Done: the lease is no hold of this node any more.
	Done bool
	// Gone: the pod is gone, so the address is verified like any other.
	Gone bool
	// Why the pod is not adopted, as a clause.
	Why string
	// Speaker is the MAC of a second speaker for the address of the Lease.
	Speaker net.HardwareAddr
	Lease   string
}

// Verifier reconciles the Quarantined leases of this node.
type Verifier struct {
	Options

	mu    sync.Mutex
	tries map[string]attempts
}

// attempts counts findings of one kind in a row.
type attempts struct {
	finding lease.Finding
	count   int
	// due is the earliest time of the next look, unless the lease was changed.
	due time.Time
	// version is the resourceVersion at the last look. After a change, the next look comes at once.
	version string
	// ignored: the pool ignored the MAC of the conflict at the last look.
	ignored bool
}

// New returns a Verifier.
func New(o Options) *Verifier { return &Verifier{Options: o, tries: map[string]attempts{}} }

// Reconcile verifies one lease, if it is Quarantined and assigned to this node.
func (v *Verifier) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	cached := &v1alpha1.IPLease{}
	if err := v.Cache.Get(ctx, r.NamespacedName, cached); err != nil {
		v.forget(r.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !v.mine(cached) {
		v.forget(r.Name)
		return reconcile.Result{}, nil
	}
	if v.IsStandby(r.Name) {
		return reconcile.Result{}, nil
	}
	pool, err := v.poolOf(ctx, cached)
	if err != nil {
		return reconcile.Result{}, err
	}
	if wait := v.tooEarly(cached, pool); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if cached.IsHold() && cached.Spec.Holder != nil {
		adoption, err := v.Adopt(ctx, r.Name)
		if err != nil || !adoption.Gone {
			return v.adopted(ctx, cached, pool, adoption, err)
		}
	}
	l, dead, err := v.KillHolder(ctx, r.Name)
	if errors.Is(err, lease.ErrGone) {
		v.forget(r.Name)
		return reconcile.Result{}, nil
	}
	if err != nil && (l == nil || lease.IsUnavailable(err)) {
		return v.later(r.Name, err)
	}
	if !v.mine(l) {
		return reconcile.Result{}, nil
	}
	return v.verify(ctx, l, dead, err)
}

// adopted records why a pod is not adopted, and tries again at a slow pace.
func (v *Verifier) adopted(ctx context.Context, l *v1alpha1.IPLease, pool *v1alpha1.IPPool, a Adoption, err error) (reconcile.Result, error) {
	f, e := lease.FindingUnknown, lease.Evidence{Source: string(segment.SourceProbe), Message: a.Why}
	switch {
	case lease.IsUnavailable(err) || ctx.Err() != nil:
		return v.later(l.Name, err)
	case err != nil:
		e.Message = err.Error()
	case a.Done:
		v.forget(l.Name)
		return reconcile.Result{}, nil
	case a.Speaker != nil:
		f, e.MAC = lease.FindingAnswered, a.Speaker.String()
		e.Message = fmt.Sprintf("%s answers for the address of %s too", a.Speaker, a.Lease)
	}
	e.Message = l.WithRecord("not adopted: " + e.Message)
	if f == lease.FindingUnknown && l.Spec.Message == e.Message {
		return reconcile.Result{RequeueAfter: v.again(l, pool, f)}, nil
	}
	v.Events.Eventf(l, pool, corev1.EventTypeWarning, "NotAdopted", "Adopt", "%s: %s", l.Spec.Address, e.Message)
	settled, err := v.Leases.Settle(ctx, l, f, e)
	if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotMine) {
		v.forget(l.Name)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return v.later(l.Name, err)
	}
	return reconcile.Result{RequeueAfter: v.again(settled, pool, f)}, nil
}

// later tries again soon in an outage: the back-off of the queue would last much longer.
func (v *Verifier) later(name string, err error) (reconcile.Result, error) {
	if !lease.IsUnavailable(err) {
		return reconcile.Result{}, fmt.Errorf("verify lease %s: %w", name, err)
	}
	v.Log.V(1).Info("the verification waits for the API server", "lease", name, "why", err.Error())
	return reconcile.Result{RequeueAfter: apiRetry}, nil
}

func (v *Verifier) mine(l *v1alpha1.IPLease) bool {
	return l.Spec.State == v1alpha1.StateQuarantined && l.Spec.NodeName == v.Node
}

// verify looks for proof and settles the lease by the finding. If the last holder could not be
// killed on this node, there is no proof.
func (v *Verifier) verify(ctx context.Context, l *v1alpha1.IPLease, dead bool, notKilled error) (reconcile.Result, error) {
	pool, err := v.poolOf(ctx, l)
	if err != nil {
		return reconcile.Result{}, err
	}
	verdict, evidence, err := segment.Unknown, lease.Evidence{}, notKilled
	if notKilled == nil {
		verdict, evidence, err = v.judge(ctx, l, dead, pool)
	}
	if ctx.Err() != nil {
		return reconcile.Result{}, fmt.Errorf("verify lease %s: %w", l.Name, context.Cause(ctx))
	}
	if err != nil {
		v.Log.Info("the verification failed; the agent tries again", "lease", l.Name, "why", err.Error())
		evidence.Message = err.Error()
	}
	v.Verified(verdict)
	v.report(l, pool, verdict, evidence)

	f := finding(verdict)
	if f == lease.FindingUnknown && l.Spec.Message == evidence.Message {
		return reconcile.Result{RequeueAfter: v.again(l, pool, f)}, nil // nothing new to write
	}
	settled, err := v.Leases.Settle(ctx, l, f, evidence)
	switch {
	case errors.Is(err, lease.ErrGone), errors.Is(err, lease.ErrNotMine):
		v.forget(l.Name) // meanwhile assigned to another node, or taken over by its pod
		return reconcile.Result{}, nil
	case err != nil:
		return v.later(l.Name, fmt.Errorf("settle as %s: %w", verdict, err))
	case settled == nil || settled.Spec.State != v1alpha1.StateQuarantined:
		v.forget(l.Name)
		v.audit(audit.Free, l, string(verdict))
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: v.again(settled, pool, f)}, nil
}

// judge gathers the evidence in the way that plan chooses.
func (v *Verifier) judge(ctx context.Context, l *v1alpha1.IPLease, dead bool, pool *v1alpha1.IPPool) (segment.Verdict, lease.Evidence, error) {
	way := plan(&l.Spec, pool)
	if way == byTrust {
		return segment.Silent, lease.Evidence{Message: "the pool does not make this address wait in quarantine"}, nil
	}
	token, err := lease.Token(l)
	if err != nil {
		return segment.Unknown, lease.Evidence{}, err
	}
	seg, guessed, err := v.OpenSegment(pool, segment.LastHolder{Addr: l.Spec.Addr(), Parent: l.Spec.Parent, MAC: l.LastMAC()})
	if err != nil && dead {
		// The parent may be gone too. The dead slot is proof without a probe.
		return segment.Fenced, lease.Evidence{Message: segment.Evidence{SlotDead: true}.String()}, nil
	}
	if err != nil {
		return segment.Unknown, lease.Evidence{}, err
	}
	network, _, err := v1alpha1.ParseLeaseName(l.Name)
	if err != nil {
		return segment.Unknown, lease.Evidence{}, err
	}
	c := v.Self.Claim(pool.ConflictMode(), attachment.Address{Addr: l.Spec.Addr(), Network: network, Token: token}, l)
	if way == bySilence {
		c.Mode = v1alpha1.ModeObserve
	}
	question := v.Self.Verification(pool, c, l, dead)
	// A lease that this node quarantined at an ADD names the parent of that ADD.
	// The pod of a hold has no guard, but it is gone: Adopt has looked for it on its node. On another node it is not.
	question.Unguarded = question.Unguarded && !(l.IsHold() && l.Spec.Previous.Node == v.Self.Name)
	question.Guessed = guessed && l.Spec.Session != v.Self.Session
	verdict, evidence, err := seg.Verify(ctx, question)
	found := lease.Evidence{Source: string(segment.SourceProbe), Message: sentence(evidence)}
	if evidence.Answer.Conflict {
		found.MAC = evidence.Answer.MAC.String()
	}
	return verdict, found, err
}

// report makes an event, a metric and an audit line of a verdict.
func (v *Verifier) report(l *v1alpha1.IPLease, pool *v1alpha1.IPPool, verdict segment.Verdict, e lease.Evidence) {
	switch verdict {
	case segment.Fenced:
		v.audit(audit.Fence, l, e.Message)
		v.Events.Eventf(l, pool, corev1.EventTypeNormal, "Fenced", "Verify", "%s: %s", l.Spec.Address, e.Message)
	case segment.Answered:
		v.audit(audit.Conflict, l, e.Message)
		v.Conflict(l.Spec.Pool, segment.SourceProbe)
		v.Events.Eventf(l, pool, corev1.EventTypeWarning, "AddressConflict", "Verify", "%s: %s", l.Spec.Address, e.Message)
	case segment.Unknown:
		if l.Spec.Message != e.Message {
			v.Events.Eventf(l, pool, corev1.EventTypeWarning, "NotProven", "Verify", "%s stays in quarantine: %s", l.Spec.Address, e.Message)
		}
	}
}

func (v *Verifier) audit(kind audit.Kind, l *v1alpha1.IPLease, reason string) {
	audit.Log(v.Log, kind, audit.Of(l, v.Node, reason))
}

func (v *Verifier) forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.tries, name)
}

// poolOf returns the pool of a lease, or an empty one if it was deleted.
func (v *Verifier) poolOf(ctx context.Context, l *v1alpha1.IPLease) (*v1alpha1.IPPool, error) {
	pool := &v1alpha1.IPPool{}
	err := v.Cache.Get(ctx, client.ObjectKey{Name: l.Spec.Pool}, pool)
	return pool, client.IgnoreNotFound(err)
}

// tooEarly returns the wait until the next look at a lease that no other writer has changed. There
// is no wait once the pool ignores the MAC for which the lease is Quarantined.
func (v *Verifier) tooEarly(l *v1alpha1.IPLease, pool *v1alpha1.IPPool) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	t, ok := v.tries[l.Name]
	switch {
	case !t.ignored && pool.IgnoresMAC(l.Spec.ConflictMAC()):
		return 0
	case !ok:
		return untilFirst(&l.Spec, v.Clock.Now())
	case t.version != l.ResourceVersion:
		return 0
	}
	return t.due.Sub(v.Clock.Now())
}

// again counts a finding and returns the wait before the next look.
func (v *Verifier) again(l *v1alpha1.IPLease, pool *v1alpha1.IPPool, f lease.Finding) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.tries[l.Name]
	if t.finding != f {
		t = attempts{finding: f}
	}
	t.count++
	wait := pause(f, t.count)
	if l.IsHold() {
		wait = loop.Pause(unknownFirst, holdMost, t.count)
	}
	t.due, t.version, t.ignored = v.Clock.Now().Add(wait), l.ResourceVersion, pool.IgnoresMAC(l.Spec.ConflictMAC())
	v.tries[l.Name] = t
	return wait
}
