package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/claim"
	"github.com/fenceline/fenceline/bpf"
)

// keyring is the claim keys in force. The zero value has none.
type keyring struct {
	current, previous *bpf.ClaimKey
	// outlived: previous is of a Secret that was lost. No other Secret names it.
	outlived bool
}

// next returns the keys in force once a Secret names these. Where one that was
// lost is made again, it knows no previous key, but a node that is cut off knows
// no other one: it stays in force here until the Secret names a key again.
func (r keyring) next(current bpf.ClaimKey, previous *bpf.ClaimKey) keyring {
	switch {
	case previous != nil || r.current == nil:
		return keyring{current: &current, previous: previous}
	case *r.current != current:
		return keyring{current: &current, previous: r.current, outlived: true}
	case r.outlived:
		return r
	}
	return keyring{current: &current} // the rotation has ended
}

// keys are those that claims go out under.
func (r keyring) keys() []claim.Key {
	keys := []claim.Key{claim.Key(*r.current)}
	if r.previous != nil {
		keys = append(keys, claim.Key(*r.previous))
	}
	return keys
}

// claimKeys reads the key that claims go out under, and during a rotation the
// one before it.
func claimKeys(secret *corev1.Secret) (current bpf.ClaimKey, previous *bpf.ClaimKey, err error) {
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
