// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/audit"
)

// Leave gives the interface of an entry back to another IPAM, if the Move of its lease l goes back: the leases end,
// then the guard goes, and the pod runs on. It reports whether the entry is gone. The other IPAM has the
// addresses, and Fenceline gives them to nobody, since the controller asks only while their pools are disabled. A
// pod with a host link stays: its routes lead through it.
//
// The entry is Adopting meanwhile, so that a crash leads here again. A guard without leases would drop the
// pod's frames, so the kernel forgets the addresses last. The caller has locked the attachment.
func Leave(ctx context.Context, r *Releaser, e attachment.Entry, l *v1alpha1.IPLease) (left bool, err error) {
	isAsked := l.Annotations[v1alpha1.AnnotationMoveBack] != "" || e.Phase == attachment.Adopting && l.Labels[v1alpha1.LabelMove] != ""
	isLinked := e.Routing != nil && e.Routing.HostLink
	if !isAsked || e.Unguarded || isLinked || !Holds(l, r.Self.Name, &e) {
		return false, nil
	}
	move := &v1alpha1.Move{}
	err = r.Reader.Get(ctx, client.ObjectKey{Name: l.Labels[v1alpha1.LabelMove]}, move)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read move %s: %w", l.Labels[v1alpha1.LabelMove], err)
	}
	if !givesBack(move, &e) {
		return false, nil
	}
	var leases []*v1alpha1.IPLease
	for _, address := range e.Addresses {
		l, err := r.Leases.Get(ctx, address.LeaseName)
		switch {
		case errors.Is(err, lease.ErrGone):
		case err != nil:
			return false, err
		case !Holds(l, r.Self.Name, &e):
			return false, nil // a newer sandbox has it
		default:
			leases = append(leases, l)
		}
	}
	if e.Phase != attachment.Adopting {
		e.Phase, e.Adopted = attachment.Adopting, true
		if err := r.Attachments.Put(e); err != nil {
			return false, err
		}
	}
	for _, l := range leases {
		if err := endLease(ctx, r, l); err != nil {
			return false, fmt.Errorf("give %s of pod %s/%s back to %s: %w", l.Spec.Address, e.PodNamespace, e.PodName, move.Spec.From, err)
		}
		address, _ := e.Lease(l.Name)
		audit.Log(r.Log, audit.Free, e.Audit(address, r.Self.Name, "given back to "+string(move.Spec.From)))
	}
	return true, Unguard(r, e)
}

// endLease deletes the lease of a pod that goes back. If its adoption was cut off, it is confirmed before: the pod itself is
// the predecessor.
func endLease(ctx context.Context, r *Releaser, l *v1alpha1.IPLease) (err error) {
	if l.Spec.Previous != nil {
		if l, err = r.Leases.Update(ctx, l, lease.Confirm); err != nil {
			return err
		}
	}
	return r.Leases.Delete(ctx, l)
}

// givesBack reports whether a move gives the sandbox of an entry back, with all addresses of the interface.
func givesBack(m *v1alpha1.Move, e *attachment.Entry) bool {
	if m.Spec.Step != v1alpha1.MoveBack {
		return false
	}
	of, sandbox := map[string]*v1alpha1.MoveRecord{}, v1alpha1.Holder{PodUID: e.PodUID, ContainerID: e.ContainerID}
	for i := range m.Spec.Records {
		of[m.Spec.Records[i].Address] = &m.Spec.Records[i]
	}
	for _, address := range e.Addresses {
		if r := of[address.Addr.String()]; r == nil || !r.GoesBack(&sandbox) {
			return false
		}
	}
	return true
}

// Unguard takes the guard of an entry off and removes the entry. The pod runs on without Fenceline.
func Unguard(r *Releaser, e attachment.Entry) error {
	if err := errors.Join(r.HostLinks.Remove(&e), r.Guards.Kernel.Guards.Detach(e.Slot)); err != nil {
		return fmt.Errorf("take the guard off %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err)
	}
	for _, address := range e.Addresses {
		if err := r.Guards.Leases.Uninstall(e.ParentIndex, address.Addr, e.Slot); err != nil {
			return err
		}
	}
	if err := r.VFs.Release(&e); err != nil {
		return err
	}
	if err := r.Attachments.Remove(e.ContainerID, e.Interface); err != nil {
		return err
	}
	r.Guards.Slots.Leave(e.Slot)
	return nil
}
