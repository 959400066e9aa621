// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// freeWithoutEntry ends leases that are bound here and have no entry in the journal. ADD
// journals an intent before each write. The entry is removed once a GET has shown no
// lease; a write whose answer was lost may take effect even later, so its lease is read again. freeWithoutEntry
// ends the leases that two calls have seen unchanged. It belongs to Run.
func (w *Worker) freeWithoutEntry(ctx context.Context) error {
	if err := w.readLate(ctx); err != nil {
		return err
	}
	leases := &v1alpha1.IPLeaseList{}
	if err := w.Cache.List(ctx, leases); err != nil {
		return fmt.Errorf("list the leases of this node: %w", err)
	}
	var errs []error
	seen := map[string]string{}
	for i := range leases.Items {
		l := &leases.Items[i]
		if !w.isWithoutEntry(l) {
			continue
		}
		seen[l.Name] = l.ResourceVersion
		if w.withoutEntry[l.Name] == l.ResourceVersion {
			errs = append(errs, w.endWithoutEntry(ctx, l.Name, l.ResourceVersion))
		}
	}
	w.withoutEntry = seen
	return errors.Join(errs...)
}

func (w *Worker) readLate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attachment.AskTimeout)
	defer cancel()
	return w.Leases.ReadLate(ctx)
}

// isWithoutEntry reports whether a lease was bound in this session and is in no entry of the
// journal.
func (w *Worker) isWithoutEntry(l *v1alpha1.IPLease) bool {
	s := &l.Spec
	if s.State != v1alpha1.StateBound || s.NodeName != w.Self.Name || s.Session != w.Self.Session || s.Holder == nil {
		return false
	}
	return !w.isNamed(l)
}

// isNamed reports whether an entry has the address of a lease, for the sandbox that it names or for another
// one of its pod, to which the address has moved.
func (w *Worker) isNamed(l *v1alpha1.IPLease) bool {
	e, _ := w.Attachments.Get(l.Spec.Holder.ContainerID, l.Spec.Holder.Interface)
	_, named := e.Lease(l.Name)
	return named || slices.ContainsFunc(w.Attachments.OfPod(l.Spec.Holder.PodUID), func(e *attachment.Entry) bool {
		_, named := e.Lease(l.Name)
		return named && e.HasMoved()
	})
}

// endWithoutEntry ends a lease if a GET shows that version, and no slot may use its
// address: the entry of a running pod may have been damaged.
func (w *Worker) endWithoutEntry(ctx context.Context, name, version string) error {
	ctx, cancel := context.WithTimeout(ctx, attachment.AskTimeout)
	defer cancel()
	l, err := w.Leases.Get(ctx, name)
	if errors.Is(err, lease.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	of := l.Spec.Holder
	if of == nil {
		return nil
	}
	unlock, ok := w.Attachments.Calls.TryLock(agentapi.Attachment{ContainerID: of.ContainerID, Interface: of.Interface})
	if !ok {
		return nil // a call of the plugin works on it
	}
	defer unlock()
	if l.ResourceVersion != version || !w.isWithoutEntry(l) {
		return nil
	}
	addr := l.Spec.Addr()
	if speaks, err := w.Guards.Leases.MaySpeak(addr); speaks || err != nil {
		return err
	}
	address := attachment.Address{Addr: addr, Pool: l.Spec.Pool, LeaseName: l.Name, Static: lease.IsStatic(&l.Spec)}
	entry := attachment.Entry{PodNamespace: of.Namespace, PodName: of.Pod, PodUID: of.PodUID, MAC: of.MAC}
	if err := w.Releaser.End(ctx, l, &entry, address); err != nil {
		return fmt.Errorf("free %s, which is bound and in no entry of the journal: %w", addr, err)
	}
	return nil
}
