// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"fmt"
)

// ClaimKey is the SipHash key that authenticates claims and acks.
type ClaimKey [16]byte

// Indexes into the keys map. An ack uses the key of its claim, so the order only decides which key
// is tried first.
const (
	keyCurrent  uint32 = 0
	keyPrevious uint32 = 1
)

func (k *ClaimKey) layout() (l observerClaimKey) {
	if k == nil {
		return l
	}
	l.Siphash.K0 = binary.LittleEndian.Uint64(k[:8])
	l.Siphash.K1 = binary.LittleEndian.Uint64(k[8:])
	l.Present = 1
	return l
}

// Keys returns the keys that authenticate claims, also those of an earlier process; nil: there is none.
func (k *Kernel) Keys() (current, previous *ClaimKey, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for index, key := range map[uint32]**ClaimKey{keyCurrent: &current, keyPrevious: &previous} {
		var l observerClaimKey
		if err := k.maps.Keys.Lookup(index, &l); err != nil {
			return nil, nil, fmt.Errorf("read the claim keys of the kernel: %w", err)
		}
		if l.Present == 0 {
			continue
		}
		*key = new(ClaimKey)
		binary.LittleEndian.PutUint64((*key)[:8], l.Siphash.K0)
		binary.LittleEndian.PutUint64((*key)[8:], l.Siphash.K1)
	}
	return current, previous, nil
}

// SetKeys sets the keys that authenticate claims; nil means no key. It writes previous first: a
// rotation makes the current key the previous one, and that key must stay valid throughout.
func (k *Kernel) SetKeys(current, previous *ClaimKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.maps.Keys.Put(keyPrevious, previous.layout()); err != nil {
		return fmt.Errorf("set previous claim key: %w", err)
	}
	if err := k.maps.Keys.Put(keyCurrent, current.layout()); err != nil {
		return fmt.Errorf("set current claim key: %w", err)
	}
	return nil
}
