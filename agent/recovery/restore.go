// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/guards"
	"github.com/fenceline/fenceline/bpf"
)

// Restore restores slots, guards and segments from the journal after a restart, without the API
// server. Call it before the first verification and the first ADD. The error names the entries that
// could not be restored, such as an interface whose parent is gone; all others were.
func (w *Worker) Restore() error {
	var errs []error
	known := map[uint32]bool{}
	for _, e := range w.Attachments.All() {
		if e.Slot != 0 {
			w.Guards.Slots.Keep(e.Slot)
			known[e.Slot] = true
		}
		if e.Session == w.Self.Session {
			errs = append(errs, w.restore(e))
		}
	}
	leases, err := w.Guards.Leases.All()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, l := range leases {
		if l.Slot != 0 && !known[l.Slot] {
			w.Guards.Slots.Keep(l.Slot)
			w.Guards.Slots.Leave(l.Slot)
			known[l.Slot] = true
		}
	}
	return errors.Join(append(errs, w.leaveDead(known))...)
}

// leaveDead ensures that new pods do not get killed slots without a journal entry and a kernel
// lease. The device of such a slot may still exist, and a new pod would be mute.
func (w *Worker) leaveDead(known map[uint32]bool) error {
	for slot := uint32(guards.FirstSlot); slot <= bpf.MaxSlot; slot++ {
		if known[slot] {
			continue
		}
		dead, err := w.Guards.Dead(slot)
		if err != nil {
			return fmt.Errorf("look for slots that were killed: %w", err)
		}
		if dead {
			w.Guards.Slots.Keep(slot)
			w.Guards.Slots.Leave(slot)
		}
	}
	return nil
}

// restore restores one entry of this session.
func (w *Worker) restore(e *attachment.Entry) error {
	if e.Phase == attachment.Adopting {
		return nil // its pod runs, and the Adopter goes on
	}
	if e.Phase != attachment.Bound {
		// The plugin got no answer with these addresses, or a DEL has released them.
		if e.Slot == 0 || e.Unguarded {
			return nil
		}
		errs := []error{w.Guards.GuardSockets(e), w.Guards.KillSlot(e), w.Guards.FinishPin(e)}
		for _, address := range e.Addresses {
			// A move from here may have begun. The kernel goes on hearing claims, so that it can begin again.
			if address.Unfreed && !w.hasNewer(e, attachment.Bound) {
				if err := w.Guards.Leases.Install(e, address); err != nil && !errors.Is(err, bpf.ErrOlderToken) {
					errs = append(errs, err)
				}
			}
		}
		return errors.Join(errs...)
	}
	errs := []error{w.Guards.GuardSockets(e)}
	if _, err := w.OpenSegment(e.ParentIndex); err != nil {
		errs = append(errs, fmt.Errorf("open the segment of %s: %w", e.Parent, err))
	}
	if err := w.Guards.Ensure(e); err != nil {
		errs = append(errs, fmt.Errorf("guard %s of pod %s/%s: %w", e.Interface, e.PodNamespace, e.PodName, err))
	}
	errs = append(errs, w.Guards.FinishPin(e))
	for _, address := range e.Addresses {
		// A newer token belongs to a newer sandbox of the same pod.
		if err := w.Guards.Leases.Install(e, address); err != nil && !errors.Is(err, bpf.ErrOlderToken) {
			errs = append(errs, err)
		}
	}
	w.FollowYoung(e)
	return errors.Join(errs...)
}
