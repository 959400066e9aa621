// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/event"
)

// Pin moves an entry's guard to pinned links, which no process in the pod can remove. It runs after
// the answer of the ADD. If it fails, the sweeps try again, and the guard enforces meanwhile. After
// the end of ctx it does nothing.
func (g *Guards) Pin(ctx context.Context, e attachment.Entry) {
	// Guards are pinned one at a time: each pin holds the kernel's RTNL lock for tens of
	// milliseconds, and an ADD needs that lock in between.
	g.pinning.Lock()
	defer g.pinning.Unlock()
	if ctx.Err() != nil {
		return // the next agent pins it
	}
	if err := g.FinishPin(&e); err != nil {
		g.Log.Error(err, "a guard is not pinned yet: it enforces, but the pod could remove it; the agent tries again")
		g.Events.Eventf(event.Pod(e.PodNamespace, e.PodName, e.PodUID), nil, corev1.EventTypeWarning, "GuardNotPinned", "Bind",
			"the guard of %s enforces, but could not be pinned yet; the agent tries again", e.Interface)
	}
}

// FinishPin pins the guard of an entry, which may be half pinned. PinAgain repeats failed ones. A
// device that is gone is no error: Repair looks for the guards of living pods.
func (g *Guards) FinishPin(e *attachment.Entry) error {
	if e.Unguarded {
		return nil
	}
	err := g.Kernel.Guards.Pin(Of(e))
	if errors.Is(err, bpf.ErrNoDevice) {
		return nil
	}
	if err != nil {
		g.unpinned.Store(e.Attachment(), nil)
		g.Metrics.PinFailed()
	}
	return err
}

// PinAgain pins the guards that could not be pinned before.
func (g *Guards) PinAgain() error {
	var errs []error
	for _, e := range g.Attachments.All() {
		if _, missing := g.unpinned.LoadAndDelete(e.Attachment()); missing && e.Session == g.Session {
			errs = append(errs, g.FinishPin(e))
		}
	}
	return errors.Join(errs...)
}
