// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
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

// SetKeys sets the keys that authenticate claims; nil means no key. It writes previous first: a
// rotation makes the current key the previous one, and that key must stay valid throughout.
func (t *tables) SetKeys(current, previous *ClaimKey) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.maps.Keys.Put(keyPrevious, previous.layout()); err != nil {
		return fmt.Errorf("set previous claim key: %w", err)
	}
	if err := t.maps.Keys.Put(keyCurrent, current.layout()); err != nil {
		return fmt.Errorf("set current claim key: %w", err)
	}
	return nil
}

// SetNetworks sets the networks of this cluster. The programs pass claims of other networks
// unchanged.
func (t *tables) SetNetworks(networks []uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := map[uint64]bool{}
	for _, n := range networks {
		wanted[n] = true
		if err := t.maps.Networks.Put(n, uint8(1)); err != nil {
			return fmt.Errorf("add network %016x: %w", n, err)
		}
	}
	var stale []uint64
	var n uint64
	var unused uint8
	it := t.maps.Networks.Iterate()
	for it.Next(&n, &unused) {
		if !wanted[n] {
			stale = append(stale, n)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, n := range stale {
		if err := t.maps.Networks.Delete(n); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove network %016x: %w", n, err)
		}
	}
	return nil
}
