// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// checkInterval is the time between two looks at the Secret.
	checkInterval = 5 * time.Second
	// patience is how long the agent waits for its first key. The controller makes the Secret when it
	// begins, and makes it again if it is lost.
	patience = time.Minute
)

// Reasons of faults, which are labels of the metric.
const (
	reasonMissing   = "missing"
	reasonMalformed = "malformed"
)

// KeyWatchOptions are the options of a KeyWatch. All are required.
type KeyWatchOptions struct {
	event.Reporter
	// Cache holds the Secret.
	Cache     client.Reader
	Namespace string
	// HasKey reports whether a key is in force.
	HasKey func() bool
	// SetFault sets the gauge that says whether the Secret has a fault.
	SetFault func(reason string, present bool)
}

// KeyWatch reports a Secret that is missing or malformed, and ends the wait for the first key.
type KeyWatch struct {
	KeyWatchOptions
	waited atomic.Bool
	faults loop.Backoff
}

// NewKeyWatch returns a KeyWatch.
func NewKeyWatch(o KeyWatchOptions) *KeyWatch { return &KeyWatch{KeyWatchOptions: o} }

// Settled reports whether a key is in force, or the wait for one has ended. Without a key this node
// claims nothing: probes protect the addresses of ADDs, and no address is taken by force. It is
// safe for concurrent use.
func (w *KeyWatch) Settled() bool { return w.HasKey() || w.waited.Load() }

// Run looks at the Secret until ctx ends.
func (w *KeyWatch) Run(ctx context.Context) error {
	began := w.Clock.Now()
	return loop.Loop{Clock: w.Clock, Period: checkInterval}.Every(ctx, func(ctx context.Context) {
		if w.Clock.Since(began) >= patience || w.HasKey() {
			w.waited.Store(true)
			w.look(ctx)
		}
	})
}

// look reports the fault of the Secret, if it is new.
func (w *KeyWatch) look(ctx context.Context) {
	reason, fault := w.fault(ctx)
	for _, r := range []string{reasonMissing, reasonMalformed} {
		w.SetFault(r, r == reason)
	}
	if fault == nil {
		w.faults.Reset()
		return
	}
	if w.HasKey() {
		fault = fmt.Errorf("%w; the key from before stays in force on this node until the agent ends", fault)
	} else {
		fault = fmt.Errorf("%w; this node claims no address: probes find other hosts, and nothing is fenced or taken by force", fault)
	}
	if !w.faults.IsNew(fault) {
		return
	}
	w.Log.Error(fault, "the claim key cannot be used")
	w.NodeEventf(corev1.EventTypeWarning, "ClaimKeyUnusable", "ReadClaimKey", "%s", fault)
}

// fault returns the fault of the Secret, or nil.
func (w *KeyWatch) fault(ctx context.Context) (reason string, err error) {
	secret := &corev1.Secret{}
	err = w.Cache.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: KeySecret}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return reasonMissing, errors.New("the Secret " + KeySecret + " is missing, which the controller makes: is it running?")
	case err != nil:
		return "", fmt.Errorf("read Secret %s: %w", KeySecret, err)
	}
	if _, _, err := keysOf(secret); err != nil {
		return reasonMalformed, fmt.Errorf("read Secret %s: %w; write 16 bytes, or delete it, so that the controller makes it again", KeySecret, err)
	}
	return "", nil
}
