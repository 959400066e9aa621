package holder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/bpf"
)

const (
	// resumePeriod is how often every lease of the journal is looked at without a cause.
	resumePeriod = time.Minute
	// retryFirst and retryMost bound the back-off of what failed.
	retryFirst = 200 * time.Millisecond
	retryMost  = 10 * time.Second
	// sweepPeriod is how often guards of devices that are gone are swept.
	sweepPeriod = 5 * time.Second
)

// poke asks the worker to look at the journal soon.
func (h *Holders) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Changed tells that the lease of an address changed or went away as a watch
// saw it. The watch decides nothing: the journal is resumed by GETs (R7).
func (h *Holders) Changed() { h.poke() }

// RunSweeps sweeps from time to time until ctx ends.
func (h *Holders) RunSweeps(ctx context.Context) error {
	for {
		timer := h.Clock.NewTimer(sweepPeriod)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
		if err := h.Sweep(); err != nil {
			h.Log.Error(err, "sweep guards of devices that are gone")
		}
	}
}

// Run resumes and releases what the journal holds, at once, when poked and
// from time to time, until ctx ends.
func (h *Holders) Run(ctx context.Context) error {
	wait := time.Duration(0)
	retry := retryFirst
	for {
		timer := h.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-h.wake:
		case <-timer.C():
		}
		timer.Stop()
		if err := h.Resume(ctx); err != nil && ctx.Err() == nil {
			h.Log.Info("the journal is resumed again", "in", retry, "why", err.Error())
			wait, retry = retry, min(2*retry, retryMost)
			continue
		}
		wait, retry = resumePeriod, retryFirst
	}
}

// Sweep gives slots back whose entry and device are gone, with what the kernel
// holds for them.
func (h *Holders) Sweep() error {
	if _, err := h.Kernel.SweepGuards(); err != nil {
		return err
	}
	leaving := h.slots.leaving()
	if len(leaving) == 0 {
		return nil
	}
	leases, err := h.Kernel.Leases()
	if err != nil {
		return fmt.Errorf("read the kernel's leases: %w", err)
	}
	var errs []error
	for _, slot := range leaving {
		errs = append(errs, h.sweepSlot(slot, leases))
	}
	return errors.Join(errs...)
}

// sweepSlot frees a slot, unless its device still lives and may try to speak.
func (h *Holders) sweepSlot(slot uint32, leases map[bpf.Key]bpf.Lease) error {
	attached, err := h.Kernel.GuardAttached(slot)
	if err != nil || attached {
		return err
	}
	for key, l := range leases {
		if l.Slot != slot {
			continue
		}
		if err := h.Kernel.RemoveLease(key); err != nil {
			return fmt.Errorf("remove the lease of %s and slot %d: %w", key, slot, err)
		}
	}
	h.slots.free(slot)
	return nil
}

// Bound returns the entries whose interfaces hold addresses now.
func (h *Holders) Bound() []journal.Entry {
	var bound []journal.Entry
	for _, e := range h.Journal.All() {
		if e.Phase == journal.Bound && e.Session == h.Session {
			bound = append(bound, e)
		}
	}
	return bound
}
