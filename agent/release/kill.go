// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// KillHolder reads a lease past the cache. If the lease is Quarantined and names a
// predecessor, it kills every slot of this node that may use its address. dead reports
// that the last holder belonged to this session: that is positive proof (R8).
func (r *Releaser) KillHolder(ctx context.Context, name string) (l *v1alpha1.IPLease, dead bool, err error) {
	defer r.Attachments.Calls.LockLease(name)()
	ctx, cancel := context.WithTimeout(ctx, attachment.AskTimeout) // a take-over waits for the lock
	defer cancel()
	l, err = r.Leases.Get(ctx, name)
	if err != nil || l.Spec.State != v1alpha1.StateQuarantined || !lease.HasPredecessor(&l.Spec) {
		return l, false, err
	}
	return l, r.Self.EndedHere(l), r.KillSpeakers(l, 0)
}

// IsStandby reports whether a pod of this node stands behind the holder of a lease. Recovery takes
// such a lease over, and no verifier frees it or kills the slot of the pod.
func (r *Releaser) IsStandby(lease string) bool {
	for e := range r.Attachments.Bound() {
		for _, address := range e.Addresses {
			if address.LeaseName == lease && address.Behind != 0 {
				return true
			}
		}
	}
	return false
}

// KillSpeakers kills every slot of this node that may use a lease's address, by the
// journal or by the kernel, except the new holder's own slot.
func (r *Releaser) KillSpeakers(l *v1alpha1.IPLease, own uint32) error {
	for _, e := range r.Attachments.All() {
		for _, address := range e.Addresses {
			if address.LeaseName != l.Name || e.Slot == 0 || e.Slot == own || e.Session != r.Self.Session {
				continue
			}
			// An address without a token was not used yet, so a take-over under way goes on. But an
			// ADD of the lease's own holder is killed, because it may use the address soon. The pod of an
			// adoption under way has used it all along: its hold is verified once it is gone.
			if address.Token == 0 && (!isHolder(&l.Spec, e) || e.Phase == attachment.Adopting) {
				continue
			}
			r.Attachments.Calls.Overtake(e.Attachment())
			kill := r.Guards.KillSlot
			if e.Unguarded || e.Phase == attachment.Bound && r.Guards.Alone(e) {
				kill = r.muteAlone
			}
			// Without the record, the address could move to the next sandbox of the pod later.
			if err := errors.Join(kill(e), r.Attachments.Take(e.Attachment())); err != nil {
				return fmt.Errorf("end the holder of %s: %w", address.Addr, err)
			}
		}
	}
	network, addr, err := v1alpha1.ParseLeaseName(l.Name)
	if err != nil {
		return err
	}
	return r.Guards.KillUsers(network, addr, own)
}

// Mute kills an entry's slot and journals that the interface stays mute: the lease may be free again
// before the API server answers about the pod. The caller has locked the attachment.
func (r *Releaser) Mute(e *attachment.Entry) error {
	if !e.Unguarded { // a VF is switched off only once nothing switches it on again
		if err := r.Guards.KillSlot(e); err != nil {
			return err
		}
	}
	if !e.Mute {
		e.Mute = true
		// The node reaches the new holder by the underlay.
		r.HostLinks.Wake(e.Attachment())
		if err := r.Attachments.Put(*e); err != nil {
			return err
		}
	}
	if r.Guards.Alone(e) {
		return r.Silence(e)
	}
	return nil
}

// Silence kills the slot of an entry: from then on its interface is mute. If only its PF can silence the
// VF of a running pod, the VF is switched off; without a guard, the caller has journalled that the
// entry is Mute, so that it stays off.
func (r *Releaser) Silence(e *attachment.Entry) error {
	if !e.Unguarded {
		if err := r.Guards.KillSlot(e); err != nil {
			return err
		}
	}
	if r.Guards.Alone(e) && e.Phase == attachment.Bound {
		return r.VFs.SwitchOff(e)
	}
	return nil
}

// errBusy: see muteAlone.
var errBusy = errors.New("a call of the runtime for it is under way")

// muteAlone mutes an entry whose VF only its PF can silence, and that another call has found. Its
// program does not run before the answer of its ADD, and has ended before the answer of its DEL.
func (r *Releaser) muteAlone(found *attachment.Entry) error {
	if found.Phase != attachment.Bound {
		return nil
	}
	unlock, ok := r.Attachments.Calls.TryLock(found.Attachment())
	if !ok {
		return errBusy
	}
	defer unlock()
	e, ok := r.Attachments.Get(found.ContainerID, found.Interface)
	if !ok || e.Phase != attachment.Bound {
		return nil // a DEL has come meanwhile
	}
	return r.Mute(&e)
}

// isOfPod reports whether a lease names the interface of an entry's pod, in this or another sandbox.
func isOfPod(s *v1alpha1.IPLeaseSpec, e *attachment.Entry) bool {
	return s.Holder != nil && s.Holder.PodUID == e.PodUID && e.PodUID != "" && s.Holder.Interface == e.Interface
}

// isHolder reports whether an entry belongs to the container that a lease names.
func isHolder(s *v1alpha1.IPLeaseSpec, e *attachment.Entry) bool {
	return s.Holder != nil && s.Holder.ContainerID == e.ContainerID && s.Holder.Interface == e.Interface
}
