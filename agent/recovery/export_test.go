// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"time"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
)

// These are exported for tests.
var (
	ErrDisputed = errDisputed
	ErrOutrun   = errOutrun
)

// RetryMost is exported for tests.
const RetryMost = retryMost

// Disputes counts what is disputed.
func (w *Worker) Disputes() int { return len(w.disputed) }

// Suspect is a part of Run.
func (w *Worker) Suspect(ctx context.Context) { w.suspect(ctx) }

// SetAsideLastBoot is a part of Run.
func (w *Worker) SetAsideLastBoot(ctx context.Context) error { return w.setAsideLastBoot(ctx) }

// FreeWithoutEntry is a part of Run.
func (w *Worker) FreeWithoutEntry(ctx context.Context) error { return w.freeWithoutEntry(ctx) }

// ResumeEntry resumes one attachment.
func (w *Worker) ResumeEntry(ctx context.Context, a agentapi.Attachment, patience time.Duration) error {
	return w.resumeEntry(ctx, a, patience)
}

// Rebind is a step of the resumption of an entry.
func (w *Worker) Rebind(ctx context.Context, e attachment.Entry, address attachment.Address, found *v1alpha1.IPLease) error {
	return (&resumption{w, e, address, found}).rebind(ctx)
}

// DeletePod is a step of the resumption of an entry.
func (w *Worker) DeletePod(ctx context.Context, e *attachment.Entry, address attachment.Address) error {
	return (&resumption{w, *e, address, nil}).deletePod(ctx)
}

// RecoverLost is a part of Run.
func (w *Worker) RecoverLost(ctx context.Context) error { return w.recoverLost(ctx) }
