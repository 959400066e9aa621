// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/agent/release"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/internal/owner"
)

// disputePatience is the time for which a living pod is left alone although its lease has another
// holder, if no claim for the address is heard. The other node may still be probing. It will hear
// the pod and quarantine the lease, and the pod takes the lease back.
const disputePatience = 2 * time.Second

var (
	// errBusy: a call of the plugin works on the entry.
	errBusy = errors.New("a call of the runtime is under way")
	// errUndecided: a fact that the decision needs is not known yet.
	errUndecided = errors.New("it cannot be decided yet")
	// errDisputed: see disputePatience.
	errDisputed = errors.New("another node may be probing the address")
	// errBehind: the source of a live migration still has the address.
	errBehind = errors.New("the source of the migration has the address")
)

// resumeEntry resumes one attachment: an entry that is not bound is released, and for a
// bound entry a GET of each lease decides (R7).
func (w *Worker) resumeEntry(ctx context.Context, a agentapi.Attachment, patience time.Duration) error {
	unlock, ok := w.Attachments.Calls.TryLock(a)
	if !ok {
		return errBusy
	}
	defer unlock()
	e, ok := w.Attachments.Get(a.ContainerID, a.Interface)
	if !ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		maps.DeleteFunc(w.disputed, func(d dispute, _ time.Time) bool { return d.attachment == a })
		maps.DeleteFunc(w.renewals, func(d dispute, _ renewal) bool { return d.attachment == a })
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if e.Phase == attachment.Adopting && e.Session == w.Self.Session {
		return nil // the Adopter goes on
	}
	if e.Phase != attachment.Bound || e.Session != w.Self.Session {
		return w.releaseAfterNewer(ctx, e)
	}
	var errs []error // an address that waits does not delay the others
	for _, address := range e.Addresses {
		gone, err := w.resumeAddress(ctx, a, address.LeaseName)
		if err != nil {
			errs = append(errs, fmt.Errorf("resume %s of pod %s/%s: %w", address.Addr, e.PodNamespace, e.PodName, err))
		}
		if gone {
			break
		}
	}
	return errors.Join(errs...)
}

// resumption resumes one address of an entry by its lease, which is nil if there is none. Its entry
// is a copy that has its own changes of the journal.
type resumption struct {
	w       *Worker
	e       attachment.Entry
	address attachment.Address
	l       *v1alpha1.IPLease
}

// resumeAddress decides about one address. gone reports that the entry is gone.
func (w *Worker) resumeAddress(ctx context.Context, a agentapi.Attachment, name string) (gone bool, err error) {
	e, _ := w.Attachments.Get(a.ContainerID, a.Interface)
	address, ok := e.Lease(name)
	if !ok {
		return true, nil
	}
	w.mu.Lock()
	wait := w.renewals.wait(dispute{a, name}, w.Clock.Now())
	w.mu.Unlock()
	if wait {
		return false, errTooSoon
	}
	l, err := w.Leases.Get(ctx, name)
	if errors.Is(err, lease.ErrGone) {
		l = nil
	} else if err != nil {
		return false, err
	}
	if l != nil {
		if left, err := release.Leave(ctx, w.Releaser, e, l); left || err != nil {
			return left, err
		}
	}
	r := &resumption{w, e, address, l}
	if address.Behind != 0 {
		return r.followTurn(ctx)
	}
	action, err := r.decide(ctx)
	if err != nil {
		return false, err
	}
	if action != lease.GoOn {
		w.Log.Info("resume", "address", address.Addr, "pod", e.PodNamespace+"/"+e.PodName, "action", action)
	}
	if gone, err = r.act(ctx, action); gone || err != nil {
		return gone, err
	}
	return false, r.endWait(ctx)
}

// act carries out a decision.
func (r *resumption) act(ctx context.Context, action lease.Action) (gone bool, err error) {
	switch action {
	case lease.GoOn:
		if r.address.LeaseUID == "" || !r.address.Moved.IsZero() { // the agent died after its write
			return false, r.adopt(r.l, leaseLost)
		}
		if r.l.Spec.Holder.MAC != r.e.MAC {
			// A plugin has changed it after IPAM, and the kernel has the new MAC already.
			if r.l, err = r.w.Leases.Update(ctx, r.l, lease.SetMAC(r.e.MAC)); err != nil {
				return false, err
			}
		}
		if err := r.recordGuarded(ctx); err != nil {
			return false, err
		}
		return false, r.keepUp(ctx)
	case lease.RecordMove:
		return false, r.recordMove(ctx)
	case lease.Rebind:
		return false, r.rebind(ctx)
	case lease.RenewToken:
		return r.renew(ctx)
	case lease.FenceAndAsk:
		return false, errors.Join(errUndecided, r.w.Releaser.Mute(&r.e))
	case lease.FenceAndDeletePod:
		return true, r.yield(ctx)
	case lease.Release:
		return true, r.w.releaseAfterNewer(ctx, r.e)
	}
	return false, errUndecided
}

// recordGuarded records whether a guard can enforce a fence: silence after a claim does not prove that
// a VF is silent that may send past its guard (R1).
func (r *resumption) recordGuarded(ctx context.Context) (err error) {
	alone := r.w.Guards.Alone(&r.e)
	if r.l.Spec.Holder.Guarded == alone {
		if r.l, err = r.w.Leases.Update(ctx, r.l, lease.SetGuarded(!alone)); err != nil {
			return err
		}
	}
	if r.e.Unguarded || r.e.Bypasses == alone {
		return nil
	}
	r.e.Bypasses = alone
	return r.w.Attachments.Put(r.e)
}

// releaseAfterNewer fences an entry at once. It frees the entry once no ADD of a newer
// sandbox of its pod is under way: such an ADD takes the addresses over one by one.
func (w *Worker) releaseAfterNewer(ctx context.Context, e attachment.Entry) error {
	if w.Guards.Alone(&e) && e.Phase == attachment.Bound && e.Session == w.Self.Session && w.Releaser.SandboxMayLive(&e) {
		return w.Releaser.Mute(&e) // only its DEL shows that its program has ended, and releases it
	}
	if err := w.Releaser.Fence(&e); err != nil {
		return err
	}
	if w.hasNewer(&e, attachment.Intent) {
		return errBusy
	}
	if w.Releaser.Undecided(ctx, &e) {
		return errUndecided
	}
	return w.Releaser.Free(ctx, e)
}

// hasNewer reports whether a newer sandbox of an entry's pod is in a phase.
func (w *Worker) hasNewer(e *attachment.Entry, p attachment.Phase) bool {
	return slices.ContainsFunc(w.Attachments.OfPod(e.PodUID), func(other *attachment.Entry) bool {
		return other.Phase == p && other.Interface == e.Interface && other.Created.After(e.Created)
	})
}

// yield releases the entry of a pod that is still wanted, and deletes the pod. The entry
// is removed last: it records the pod until the pod is deleted.
func (r *resumption) yield(ctx context.Context) error {
	err := r.w.Releaser.Mute(&r.e)
	alone := r.w.Guards.Alone(&r.e)
	if err == nil || alone { // the end of the pod silences it too
		err = errors.Join(err, r.deletePod(ctx))
	}
	if err != nil || alone {
		return err
	}
	return r.w.Releaser.Release(ctx, r.e)
}

// hasMoved reports whether the address has moved here, and no other sandbox of the pod has it by now.
func (r *resumption) hasMoved() bool {
	if r.address.Moved.IsZero() || r.l == nil || r.l.Spec.Holder == nil || r.w.hasNewer(&r.e, attachment.Intent) {
		return false
	}
	named, ok := r.w.Attachments.Get(r.l.Spec.Holder.ContainerID, r.e.Interface)
	return !ok || named.Phase == attachment.Releasing
}

// decide gathers the facts and decides. It reads the pod only if the decision depends on it.
func (r *resumption) decide(ctx context.Context) (lease.Action, error) {
	fenced, err := r.w.Guards.Leases.Fenced(&r.e, r.address)
	if err != nil {
		return lease.Wait, err
	}
	fenced = fenced || r.e.Mute
	known := lease.Known{
		GivesWay:    r.e.Mute,
		ContainerID: r.e.ContainerID, Interface: r.e.Interface,
		PodUID: r.e.PodUID, MAC: r.e.MAC, LeaseUID: r.address.LeaseUID,
		Machine: r.e.Machine, Namespace: r.e.PodNamespace,
		Node: r.w.Self.Name, Session: r.w.Self.Session, Fenced: fenced, Moved: r.hasMoved(),
	}
	action := lease.Resume(known, r.l)
	if action == lease.RenewToken {
		// The claim may be that of another pod, whose lease the store has lost.
		how, _, err := r.renewalOf(ctx)
		if err != nil {
			return lease.Wait, err
		}
		known.GivesWay = how == lease.GiveWay
		action = lease.Resume(known, r.l)
	}
	if action == lease.Wait || action == lease.FenceAndAsk {
		known.Pod = r.w.podState(ctx, &r.e)
		action = lease.Resume(known, r.l)
	}
	lost := action == lease.FenceAndDeletePod || action == lease.FenceAndAsk
	if lost && !fenced && r.disputes() {
		return lease.Wait, errDisputed
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	delete(r.w.disputed, r.dispute())
	return action, nil
}

// dispute identifies one address of an attachment.
type dispute struct {
	attachment agentapi.Attachment
	lease      string
}

func (r *resumption) dispute() dispute { return dispute{r.e.Attachment(), r.address.LeaseName} }

// disputes reports whether this node has seen another holder's lease only for a moment:
// the other node may not have heard our pod yet.
func (r *resumption) disputes() bool {
	if r.l == nil || r.l.Spec.State != v1alpha1.StateBound && r.l.Spec.State != v1alpha1.StateWarm {
		return false
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	since, known := r.w.disputed[r.dispute()]
	if !known {
		r.w.disputed[r.dispute()] = r.w.Clock.Now()
		return true
	}
	return r.w.Clock.Since(since) < disputePatience
}

// podState reads from the API server whether an entry's pod is wanted. A pod that has a
// newer sandbox does not need this one.
func (w *Worker) podState(ctx context.Context, e *attachment.Entry) lease.PodState {
	if w.hasNewer(e, attachment.Bound) || w.hasNewer(e, attachment.Intent) {
		return lease.PodUnwanted
	}
	pod, err := w.podOf(ctx, e)
	switch {
	case err != nil:
		return lease.PodUnknown
	case pod == nil, owner.Ends(pod),
		pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return lease.PodUnwanted
	}
	return lease.PodWanted
}

// podOf reads the pod of an entry past the cache. It is nil if there is none with the UID of the entry.
func (w *Worker) podOf(ctx context.Context, e *attachment.Entry) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := w.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod)
	if apierrors.IsNotFound(err) || err == nil && !owner.IsUID(pod, e.PodUID) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	return pod, nil
}
