// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// networkIndex are the networks by their remainder. Keep in sync with claim.h.
type networkIndex [1024]uint64

func networkIndexOf(networks map[uint64]bool) *networkIndex {
	index := &networkIndex{}
	for n := range networks {
		entry := &index[n%uint64(len(index))]
		*entry = max(*entry, n)
	}
	return index
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
	if err := t.indexNetworks(networkIndexOf(wanted)); err != nil {
		return err
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

// indexNetworks writes all entries at once. It needs mu.
func (t *tables) indexNetworks(index *networkIndex) error {
	remainders := make([]uint32, len(index))
	for at := range remainders {
		remainders[at] = uint32(at)
	}
	if _, err := t.maps.NetworkIndex.BatchUpdate(remainders, index[:], nil); err != nil {
		return fmt.Errorf("write the index of networks: %w", err)
	}
	return nil
}
