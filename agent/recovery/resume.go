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

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// disputePatience is the time for which a living pod stays alone although its lease has another
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
)

// resumeEntry resumes one attachment: an entry that is not bound is released, and for a
// bound entry a GET of each lease decides (R7).
func (w *Worker) resumeEntry(ctx context.Context, a agentapi.Attachment, patience time.Duration) error {
	unlock, ok := w.Holders.TryLock(a)
	if !ok {
		return errBusy
	}
	defer unlock()
	e, ok := w.Journal.Get(a.ContainerID, a.Interface)
	if !ok {
		maps.DeleteFunc(w.disputed, func(d dispute, _ time.Time) bool { return d.attachment == a })
		maps.DeleteFunc(w.renewals, func(d dispute, _ renewal) bool { return d.attachment == a })
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if e.Phase != journal.Bound || e.Session != w.Session {
		return w.releaseAfterNewer(ctx, e)
	}
	var errs []error // an address that waits does not hold up the others
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

// resumeAddress decides about one address. gone reports that the entry is gone.
func (w *Worker) resumeAddress(ctx context.Context, a agentapi.Attachment, name string) (gone bool, err error) {
	e, address, ok := w.entryOf(a, name)
	if !ok {
		return true, nil
	}
	if w.renewals.wait(dispute{a, name}, w.Clock.Now()) {
		return false, errTooSoon
	}
	l, err := w.Leases.Get(ctx, name)
	if errors.Is(err, lease.ErrGone) {
		l = nil
	} else if err != nil {
		return false, err
	}
	if address.Behind != 0 {
		return w.followTurn(ctx, e, address, l)
	}
	action, err := w.decide(ctx, &e, address, l)
	if err != nil {
		return false, err
	}
	if action != lease.GoOn {
		w.Log.Info("resume", "address", address.Addr, "pod", e.PodNamespace+"/"+e.PodName, "action", action.String())
	}
	switch action {
	case lease.GoOn:
		if address.LeaseUID == "" {
			return false, w.adopt(&e, name, l, leaseLost)
		}
		if l.Spec.Holder.MAC != e.MAC {
			// A plugin has changed it after IPAM, and the kernel follows already.
			if l, err = w.Leases.Update(ctx, l, lease.SetMAC(e.MAC)); err != nil {
				return false, err
			}
		}
		return false, w.keepUp(ctx, &e, address, l)
	case lease.Rebind:
		return false, w.rebind(ctx, e, address, l)
	case lease.RenewToken:
		return w.renew(ctx, e, address, l)
	case lease.FenceAndAsk:
		return false, errors.Join(errUndecided, w.Holders.Mute(&e))
	case lease.FenceAndDeletePod:
		return true, w.yield(ctx, e, address)
	case lease.Release:
		return true, w.releaseAfterNewer(ctx, e)
	}
	return false, errUndecided
}

// releaseAfterNewer fences an entry at once. It frees the entry once no ADD of a newer
// sandbox of its pod is under way: such an ADD takes the addresses over one by one.
func (w *Worker) releaseAfterNewer(ctx context.Context, e journal.Entry) error {
	if e.Unguarded && e.Phase == journal.Bound && e.Session == w.Session {
		return w.Holders.Mute(&e) // only its DEL shows that its program has ended, and releases it
	}
	if err := w.Holders.Fence(&e); err != nil {
		return err
	}
	if w.hasNewer(&e, journal.Intent) {
		return errBusy
	}
	if w.Holders.Undecided(ctx, &e) {
		return errUndecided
	}
	return w.Holders.Free(ctx, e)
}

// hasNewer reports whether a newer sandbox of an entry's pod is in a phase.
func (w *Worker) hasNewer(e *journal.Entry, p journal.Phase) bool {
	return slices.ContainsFunc(w.Journal.OfPod(e.PodUID), func(other *journal.Entry) bool {
		return other.Phase == p && other.Interface == e.Interface && other.Created.After(e.Created)
	})
}

// entryOf reads an entry and its address by the name of the lease.
func (w *Worker) entryOf(a agentapi.Attachment, name string) (journal.Entry, journal.Address, bool) {
	e, _ := w.Journal.Get(a.ContainerID, a.Interface)
	for _, address := range e.Addresses {
		if address.LeaseName == name {
			return e, address, true
		}
	}
	return e, journal.Address{}, false
}

// yield releases the entry of a pod that is still wanted, and deletes the pod. The entry
// is removed last: it records the pod until the pod is deleted.
func (w *Worker) yield(ctx context.Context, e journal.Entry, address journal.Address) error {
	err := w.Holders.Mute(&e)
	if err == nil || e.Unguarded { // the end of the pod is the other way to silence it
		err = errors.Join(err, w.deletePod(ctx, &e, address))
	}
	if err != nil || e.Unguarded {
		return err
	}
	return w.Holders.Release(ctx, e)
}

// decide gathers the facts and decides. It reads the pod only if the decision depends on it.
func (w *Worker) decide(ctx context.Context, e *journal.Entry, address journal.Address, l *v1alpha1.IPLease) (lease.Action, error) {
	fenced, err := w.Guards.Fenced(e, address)
	if err != nil {
		return lease.Wait, err
	}
	fenced = fenced || e.Mute
	known := lease.Known{
		GivesWay:    e.Mute,
		ContainerID: e.ContainerID, Interface: e.Interface,
		PodUID: e.PodUID, MAC: e.MAC, LeaseUID: address.LeaseUID,
		Machine: e.Machine, Namespace: e.PodNamespace,
		Node: w.Node, Session: w.Session, Fenced: fenced,
	}
	action := lease.Resume(known, l)
	if action == lease.RenewToken {
		if known.GivesWay, err = w.givesWay(ctx, e, address); err != nil {
			return lease.Wait, err
		}
		action = lease.Resume(known, l)
	}
	if action == lease.Wait || action == lease.FenceAndAsk {
		known.Pod = w.podState(ctx, e)
		action = lease.Resume(known, l)
	}
	lost := action == lease.FenceAndDeletePod || action == lease.FenceAndAsk
	d := dispute{e.Attachment(), address.LeaseName}
	if lost && !fenced && w.disputes(d, l) {
		return lease.Wait, errDisputed
	}
	delete(w.disputed, d)
	return action, nil
}

// dispute is about one address of an attachment.
type dispute struct {
	attachment agentapi.Attachment
	lease      string
}

// disputes reports whether this node has seen another holder's lease only for a moment:
// the other node may not have heard our pod yet.
func (w *Worker) disputes(d dispute, l *v1alpha1.IPLease) bool {
	if l == nil || l.Spec.State != v1alpha1.StateBound && l.Spec.State != v1alpha1.StateWarm {
		return false
	}
	since, known := w.disputed[d]
	if !known {
		w.disputed[d] = w.Clock.Now()
		return true
	}
	return w.Clock.Since(since) < disputePatience
}

// podState reads from the API server whether an entry's pod is wanted. A pod that has a
// newer sandbox does not need this one.
func (w *Worker) podState(ctx context.Context, e *journal.Entry) lease.PodState {
	if w.hasNewer(e, journal.Bound) || w.hasNewer(e, journal.Intent) {
		return lease.PodUnwanted
	}
	pod := &corev1.Pod{}
	err := w.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod)
	switch {
	case apierrors.IsNotFound(err):
		return lease.PodUnwanted
	case err != nil:
		return lease.PodUnknown
	case !node.IsUID(pod, e.PodUID), pod.DeletionTimestamp != nil,
		pod.Status.Phase == corev1.PodSucceeded, pod.Status.Phase == corev1.PodFailed:
		return lease.PodUnwanted
	}
	return lease.PodWanted
}
