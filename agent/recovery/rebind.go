// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
)

// leaseLost is the audit's reason for granting an address a second time.
const leaseLost = "the lease was lost while the pod ran"

// errOutrun: another writer was faster. The lease is read again.
var errOutrun = errors.New("the lease changed meanwhile")

// rebind records the address of a living pod again, after its lease was deleted or lost with the
// store. The new token lifts no fence: the address was never fenced here.
func (r *resumption) rebind(ctx context.Context) error {
	pod, err := r.w.podOf(ctx, &r.e)
	if err != nil {
		return err
	}
	if pod == nil {
		return fmt.Errorf("%w: pod %s/%s is gone or was replaced", errOutrun, r.e.PodNamespace, r.e.PodName)
	}
	// The lease will have another UID. If the journal has no UID, the lease is recognized by its
	// container, even if the answer is lost or the agent dies.
	if err := r.record("", r.address.Token); err != nil {
		return err
	}
	request := lease.AgainFor(pod, &r.e, r.address)
	l := r.l
	switch {
	case l == nil:
		l, err = r.w.Leases.Create(ctx, request)
	case l.Spec.State == v1alpha1.StateWarm:
		l, err = r.w.Leases.BindWarm(ctx, l, request)
	default:
		l, err = r.w.Leases.Update(ctx, l, lease.TakeBack(request))
	}
	if errors.Is(err, lease.ErrTaken) || errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone) {
		return fmt.Errorf("%w: %w", errOutrun, err)
	}
	if err != nil {
		return err
	}
	r.w.warn(&r.e, "LeaseRecreated", "the lease of %s was gone while the pod ran; it is recorded again", r.address.Addr)
	if err := r.adopt(l, leaseLost); err != nil {
		return err
	}
	r.l = l
	return r.keepUp(ctx)
}

// adopt journals and installs the UID and token of a lease that was written for an
// entry that already holds the address. A greater token stays: the store went back
// behind it, and claims from before must not fence the holder (R9).
func (r *resumption) adopt(l *v1alpha1.IPLease, why string) error {
	token, err := lease.Token(l)
	if err != nil {
		return err
	}
	if held, ok := r.e.Lease(r.address.LeaseName); ok {
		token = max(token, held.Token)
	}
	// A claim may have arrived since the decision. The new token must not unfence the address, nor the next
	// start, which installs what the journal has.
	if err := r.unfenced(r.address); err != nil {
		return err
	}
	if err := r.record(string(l.UID), token); err != nil {
		return err
	}
	adopted, ok := r.e.Lease(r.address.LeaseName)
	if !ok {
		return nil
	}
	if err := r.unfenced(adopted); err != nil {
		return err
	}
	audit.Log(r.w.Log, audit.Grant, r.e.Audit(adopted, r.w.Self.Name, why))
	return r.w.Guards.Leases.Install(&r.e, adopted)
}

// unfenced returns an error if a newer claim for an address was heard.
func (r *resumption) unfenced(address attachment.Address) error {
	fenced, err := r.w.Guards.Leases.Fenced(&r.e, address)
	if err == nil && fenced {
		err = fmt.Errorf("%w: a claim for %s was heard", errOutrun, address.Addr)
	}
	return err
}

// record journals another UID and token for the address. With a UID, the lease names this sandbox. It
// copies the addresses, because others read those of the journal.
func (r *resumption) record(uid string, token uint64) error {
	r.e.Addresses = slices.Clone(r.e.Addresses)
	for i := range r.e.Addresses {
		if r.e.Addresses[i].LeaseName == r.address.LeaseName {
			r.e.Addresses[i].LeaseUID, r.e.Addresses[i].Token = uid, token
			if uid != "" {
				r.e.Addresses[i].Moved = time.Time{}
			}
		}
	}
	return r.w.Attachments.Put(r.e)
}

// deletePod deletes a pod that has lost its address: it would stay Ready and mute. A static pod
// stays: deleting its mirror does not end it. Only an administrator of the node can end it.
func (r *resumption) deletePod(ctx context.Context) error {
	pod, err := r.w.podOf(ctx, &r.e)
	switch {
	case err != nil:
		return err
	case pod == nil:
		r.w.warn(&r.e, "AddressLost", "%s has another holder now; the pod is fenced and was already gone", r.address.Addr)
		return nil
	case metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey): // only a kubelet may write it
		r.w.Log.Info("a static pod lost its address and cannot be deleted", "pod", r.e.PodNamespace+"/"+r.e.PodName, "address", r.address.Addr)
		r.w.warn(&r.e, "AddressLost",
			"%s has another holder now; the pod is fenced, but a static pod cannot be deleted through the API: it stays mute until its manifest is removed from node %s and put back",
			r.address.Addr, r.w.Self.Name)
		return nil
	}
	// This is the UID of the object. The runtime may know another UID.
	err = r.w.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", r.e.PodNamespace, r.e.PodName, err)
	}
	r.w.warn(&r.e, "AddressLost", "%s has another holder now; the pod is fenced and deleted", r.address.Addr)
	return nil
}
