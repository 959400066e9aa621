// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/agent/segment/claim"
	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/internal/apiserver"
)

// KeySecret is the name of the Secret that the controller creates.
const KeySecret = "fenceline-claim-key"

// KeyReconciler gives the claim keys to the kernel, which verifies with them, and to
// the segments, which sign with them. One reconcile may run at a time.
type KeyReconciler struct {
	// Cache holds the Secret.
	Cache client.Reader
	// SetKernelKeys replaces the keys that the kernel verifies with; previous may be nil.
	SetKernelKeys func(current, previous *bpf.ClaimKey) error
	// SetSigningKeys replaces the keys that sign claims.
	SetSigningKeys func(...claim.Key)
	// Used reports the revision of the Secret whose keys are in use, so that an administrator sees
	// when a rotation has reached the node.
	Used func(revision uint64)
	Log  logr.Logger

	ring ring
}

// Reconcile reads the Secret. The key of a deleted one stays in force until a Secret names another.
func (k *KeyReconciler) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := k.Cache.Get(ctx, r.NamespacedName, secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	current, previous, err := keysOf(secret)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("secret %s: %w", r.Name, err))
	}
	next := k.ring.next(current, previous)
	if err := k.SetKernelKeys(next.current, next.previous); err != nil {
		return reconcile.Result{}, fmt.Errorf("give the claim keys to the kernel: %w", err)
	}
	k.ring = next
	keys := next.keys()
	k.SetSigningKeys(keys...)
	k.Used(apiserver.RevisionOf(secret))
	k.Log.Info("the claim keys are set", "keys", len(keys))
	return reconcile.Result{}, nil
}

// Inherit signs claims with the keys that the kernel has from the last run of the agent, until their Secret is
// read. err is the error of reading them.
func (k *KeyReconciler) Inherit(current, previous *bpf.ClaimKey, err error) error {
	if err == nil && current != nil {
		k.SetSigningKeys(ring{current: current, previous: previous}.keys()...)
	}
	return err
}

// ring is the claim keys in force. The zero value has none.
type ring struct {
	current, previous *bpf.ClaimKey
	// outlived: previous comes from a Secret that was lost. No other Secret names it.
	outlived bool
}

// next returns the keys in force after a Secret named current and previous. A Secret that was lost
// and created again names no previous key. The lost key then stays in force until the Secret names
// a previous key again, because a node that is cut off knows no other key.
func (r ring) next(current bpf.ClaimKey, previous *bpf.ClaimKey) ring {
	switch {
	case previous != nil || r.current == nil:
		return ring{current: &current, previous: previous}
	case *r.current != current:
		return ring{current: &current, previous: r.current, outlived: true}
	case r.outlived:
		return r
	}
	return ring{current: &current} // the rotation has ended
}

// keys returns the keys that sign claims.
func (r ring) keys() []claim.Key {
	keys := []claim.Key{claim.Key(*r.current)}
	if r.previous != nil {
		keys = append(keys, claim.Key(*r.previous))
	}
	return keys
}

// keysOf reads the current key and, during a rotation, the previous one.
func keysOf(secret *corev1.Secret) (current bpf.ClaimKey, previous *bpf.ClaimKey, err error) {
	for _, name := range []string{"current", "previous"} {
		b, there := secret.Data[name]
		switch {
		case !there && name == "previous":
			return current, nil, nil
		case len(b) != len(current):
			return current, nil, fmt.Errorf("key %s has %d bytes, not %d", name, len(b), len(current))
		case name == "current":
			current = bpf.ClaimKey(b)
		default:
			key := bpf.ClaimKey(b)
			previous = &key
		}
	}
	return current, previous, nil
}
