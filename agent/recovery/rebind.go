// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/holder/node"
	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
)

// leaseLost is the audit's reason for granting an address a second time.
const leaseLost = "the lease was lost while the pod ran"

// errOutrun: another writer was faster. The lease is read again.
var errOutrun = errors.New("the lease changed meanwhile")

// rebind records the address of a living pod again, after its lease was deleted by hand or lost
// with the store. The new token lifts no fence: an address is rebound only if it was never fenced
// here.
func (w *Worker) rebind(ctx context.Context, e journal.Entry, address journal.Address, found *v1alpha1.IPLease) error {
	pod := &corev1.Pod{}
	if err := w.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod); err != nil {
		return fmt.Errorf("read pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	if !node.IsUID(pod, e.PodUID) {
		return fmt.Errorf("%w: pod %s/%s was replaced", errOutrun, e.PodNamespace, e.PodName)
	}
	// The lease will have another UID. If the journal has no UID, the lease is recognized by its
	// container, even if the answer is lost or the agent dies.
	if err := w.record(&e, address.LeaseName, "", address.Token); err != nil {
		return err
	}
	request := lease.Request{
		Pool: address.Pool, Network: address.Network, Addr: address.Addr, Parent: e.Parent,
		Holder:    node.OfEntry(pod, &e),
		Retention: node.RecordedRetention(pod, address.Static),
	}
	var (
		l   *v1alpha1.IPLease
		err error
	)
	switch {
	case found == nil:
		l, err = w.Leases.Create(ctx, request)
	case found.Spec.State == v1alpha1.StateWarm:
		l, err = w.Leases.BindWarm(ctx, found, request)
	default:
		l, err = w.Leases.Update(ctx, found, lease.TakeBack(request))
	}
	if errors.Is(err, lease.ErrTaken) || errors.Is(err, lease.ErrNotMine) || errors.Is(err, lease.ErrGone) {
		return fmt.Errorf("%w: %w", errOutrun, err)
	}
	if err != nil {
		return err
	}
	w.warn(&e, "LeaseRecreated", "the lease of %s was gone while the pod ran; it is recorded again", address.Addr)
	if err := w.adopt(&e, address.LeaseName, l, leaseLost); err != nil {
		return err
	}
	return w.keepUp(ctx, &e, address, l)
}

// adopt journals and installs the UID and token of a lease that was written for an
// entry that already holds the address. A greater token stays: the store went back
// behind it, and claims from before must not fence the holder (R9).
func (w *Worker) adopt(e *journal.Entry, name string, l *v1alpha1.IPLease, why string) error {
	token, err := lease.Token(l)
	if err != nil {
		return err
	}
	for _, address := range e.Addresses {
		if address.LeaseName == name {
			token = max(token, address.Token)
		}
	}
	if err := w.record(e, name, string(l.UID), token); err != nil {
		return err
	}
	for _, address := range e.Addresses {
		if address.LeaseName != name {
			continue
		}
		// A claim may have arrived since the decision. The new token would unfence the
		// address, so the entry is decided again.
		fenced, err := w.Guards.Fenced(e, address)
		if err != nil {
			return err
		}
		if fenced {
			return fmt.Errorf("%w: a claim for %s was heard", errOutrun, address.Addr)
		}
		w.Holders.Audit(audit.Grant, e, address, why)
		if err := w.Guards.Install(e, address); err != nil {
			return err
		}
	}
	return nil
}

// record journals another UID and token for an address. It copies the addresses, since
// others read the journal's own.
func (w *Worker) record(e *journal.Entry, name, uid string, token uint64) error {
	e.Addresses = slices.Clone(e.Addresses)
	for i := range e.Addresses {
		if e.Addresses[i].LeaseName == name {
			e.Addresses[i].LeaseUID, e.Addresses[i].Token = uid, token
		}
	}
	return w.Journal.Put(*e)
}

// deletePod deletes a pod that has lost its address: it would stay Ready and mute. A
// static pod stays: deleting its mirror does not end it. Only an administrator of the
// node can end it.
func (w *Worker) deletePod(ctx context.Context, e *journal.Entry, address journal.Address) error {
	pod := &corev1.Pod{}
	err := w.Reader.Get(ctx, types.NamespacedName{Namespace: e.PodNamespace, Name: e.PodName}, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && !node.IsUID(pod, e.PodUID):
		w.warn(e, "AddressLost", "%s has another holder now; the pod is fenced and was already gone", address.Addr)
		return nil
	case err != nil:
		return fmt.Errorf("read pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	case isStatic(pod):
		w.Log.Info("a static pod lost its address and cannot be deleted", "pod", e.PodNamespace+"/"+e.PodName, "address", address.Addr)
		w.warn(e, "AddressLost",
			"%s has another holder now; the pod is fenced, but a static pod cannot be deleted through the API: it stays mute until its manifest is removed from node %s and put back",
			address.Addr, w.Node)
		return nil
	}
	// This is the UID of the object. The runtime may know another UID.
	err = w.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", e.PodNamespace, e.PodName, err)
	}
	w.warn(e, "AddressLost", "%s has another holder now; the pod is fenced and deleted", address.Addr)
	return nil
}

// isStatic reports whether a pod is the mirror of a static one. Only a kubelet may
// write the annotation.
func isStatic(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}
