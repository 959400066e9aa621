package holder

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
)

// guardOf describes the guard of an entry's interface.
func guardOf(e *journal.Entry) bpf.Guard {
	return bpf.Guard{Slot: e.Slot, Segment: e.ParentIndex, NetNS: e.NetNS, Interface: e.Interface}
}

// intend journals what is about to be written, before it is, and has the guard
// put on the interface meanwhile, and the observer looked after. The interface
// is down while IPAM runs: the guard is there before the first frame.
func (a *adding) intend() error {
	if a.entry.Slot == 0 {
		slot, err := a.h.stock.take(a.entry.ParentIndex)
		if err != nil {
			return err
		}
		a.entry.Slot = slot
	}
	if err := a.h.Journal.Put(a.entry); err != nil {
		a.returnSlot()
		return err
	}
	if a.staging == nil && !a.guarded {
		staging, guard, seg := make(chan error, 1), guardOf(&a.entry), a.seg
		a.staging = staging
		go func() {
			err := a.h.Kernel.StageGuard(guard)
			if err == nil {
				err = seg.Observe()
			}
			staging <- err
		}()
	}
	return nil
}

// returnSlot gives a slot back that no guard was put on an interface with. Killed
// by the undo it would be nobody's for ever: no sweep ever sees its device gone.
func (a *adding) returnSlot() {
	if a.staging == nil && !a.guarded {
		a.h.stock.add(a.entry.ParentIndex, a.entry.Slot)
		a.entry.Slot = 0
	}
}

// guard waits until the guard enforces. Nothing is installed, probed or
// answered before.
func (a *adding) guard() error {
	if a.guarded {
		return nil
	}
	if a.staging == nil {
		if err := a.intend(); err != nil {
			return err
		}
	}
	err := a.awaitGuard()
	for errors.Is(err, bpf.ErrPinned) {
		// A guard that outlived its entry in the journal: the sweep gives the slot back.
		a.h.slots.leave(a.entry.Slot)
		a.entry.Slot = 0
		if err = a.intend(); err == nil {
			err = a.awaitGuard()
		}
	}
	if err == nil && a.replaced != 0 {
		// The dead slot of the earlier ADD would keep the interface mute.
		err = a.h.Kernel.DetachGuard(a.replaced)
	}
	if err != nil {
		return fmt.Errorf("guard %s of pod %s/%s: %w", a.entry.Interface, a.entry.PodNamespace, a.entry.PodName, err)
	}
	a.guarded = true
	return nil
}

// awaitGuard waits for the guard that is on its way, if one is.
func (a *adding) awaitGuard() error {
	if a.staging == nil {
		return nil
	}
	err := <-a.staging
	a.staging = nil
	return err
}

// pin makes an entry's guard last, off the path of its ADD. What fails is tried
// again by the sweeps; the guard enforces meanwhile.
func (h *Holders) pin(e journal.Entry) {
	// One at a time: each holds the kernel's lock of all devices for tens of
	// milliseconds, and an ADD needs it in between.
	h.pinning.Lock()
	defer h.pinning.Unlock()
	if h.background.Err() != nil {
		return // the next agent finishes it
	}
	if err := h.Kernel.PinGuard(guardOf(&e)); err != nil {
		h.unpinned.add(attachmentOf(&e))
		h.Metrics.PinFailed()
		h.Log.Error(err, "a guard is not pinned yet: it enforces, but the pod could take it away; it is tried again")
		h.warn(&e, "GuardNotPinned", "the guard of %s enforces, but could not be made to last yet; it is tried again", e.Interface)
	}
}

// prepare has guards loaded for the next interfaces on a parent, and files made
// for their entries.
func (h *Holders) prepare(parent int) {
	if err := h.Journal.Prepare(); err != nil {
		h.Log.Error(err, "the next ADD makes the file of its entry itself")
	}
	if err := h.stock.fill(h.background, parent); err != nil {
		h.Log.Error(err, "the next ADD loads its guard itself")
	}
}

// parents are those that interfaces of this node hang on.
func (h *Holders) parents() []int {
	var all []int
	for e := range h.Bound() {
		all = append(all, e.ParentIndex)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pinAgain pins what could not be pinned before.
func (h *Holders) pinAgain() error {
	var errs []error
	for a := range h.unpinned.take() {
		e, ok := h.Journal.Get(a.containerID, a.ifname)
		if !ok || e.Session != h.Session {
			continue
		}
		if err := h.Kernel.PinGuard(guardOf(&e)); err != nil {
			h.unpinned.add(a)
			h.Metrics.PinFailed()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
