package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// ClaimKey is the SipHash key that authenticates claims and acks.
type ClaimKey [16]byte

// Indexes into the keys map: acks use the key that their claim fits, so the order only decides what is tried first.
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

// SetKeys sets the keys that claims may be signed with; nil is none. Previous comes first, so that a rotation,
// which makes the current key the previous one, leaves no moment without it.
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

// SetNetworks sets the networks of this cluster. Claims of others pass untouched.
func (k *Kernel) SetNetworks(networks []uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	wanted := map[uint64]bool{}
	for _, n := range networks {
		wanted[n] = true
		if err := k.maps.Networks.Put(n, uint8(1)); err != nil {
			return fmt.Errorf("add network %016x: %w", n, err)
		}
	}
	var stale []uint64
	var n uint64
	var unused uint8
	it := k.maps.Networks.Iterate()
	for it.Next(&n, &unused) {
		if !wanted[n] {
			stale = append(stale, n)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, n := range stale {
		if err := k.maps.Networks.Delete(n); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove network %016x: %w", n, err)
		}
	}
	return nil
}
