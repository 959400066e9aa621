// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// networkIndex are the networks by their remainder.
type networkIndex [observerNetworkLimitNETWORK_INDEX]uint64

func networkIndexOf(networks map[uint64]bool) *networkIndex {
	index := &networkIndex{}
	for n := range networks {
		entry := &index[n%uint64(len(index))]
		*entry = max(*entry, n)
	}
	return index
}

// SetNetworks sets the networks of this cluster. The networks of installed leases stay too, since a
// pool may be deleted before its pods. The programs pass claims of other networks unchanged. If the
// networks do not all fit, the error is ErrNetworksFull, and the rest is set.
func (t *tables) SetNetworks(networks []uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	wanted := map[uint64]bool{}
	leases, err := t.Leases()
	if err != nil {
		return fmt.Errorf("set networks: %w", err)
	}
	for _, l := range leases {
		if l.held() {
			wanted[l.Network] = true
		}
	}
	for _, n := range networks {
		wanted[n] = true
	}
	// Room first: the map may be full of networks that are gone.
	if err := t.removeNetworks(func(n uint64) bool { return !wanted[n] }); err != nil {
		return err
	}
	var full error
	for n := range wanted {
		if err := t.addNetwork(n); errors.Is(err, ErrNetworksFull) {
			full = err
			delete(wanted, n)
		} else if err != nil {
			return err
		}
	}
	return errors.Join(full, t.indexNetworks(networkIndexOf(wanted)))
}

// addNetwork makes the programs obey claims of a network. It needs mu.
func (t *networkTable) addNetwork(n uint64) error {
	// An update of a known network would allocate memory, and could fail.
	err := t.maps.Networks.Update(n, uint8(1), ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	if errors.Is(err, unix.E2BIG) {
		err = fmt.Errorf("%w: %d", ErrNetworksFull, t.maps.Networks.MaxEntries())
	}
	if err != nil {
		return fmt.Errorf("add network %016x: %w", n, err)
	}
	return nil
}

func (t *networkTable) removeNetworks(stale func(uint64) bool) error {
	var all []uint64
	var n uint64
	var unused uint8
	it := t.maps.Networks.Iterate()
	for it.Next(&n, &unused) {
		all = append(all, n)
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, n := range all {
		if !stale(n) {
			continue
		}
		if err := t.maps.Networks.Delete(n); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove network %016x: %w", n, err)
		}
	}
	return nil
}

// indexNetworks writes all entries at once. It needs mu.
func (t *networkTable) indexNetworks(index *networkIndex) error {
	remainders := make([]uint32, len(index))
	for at := range remainders {
		remainders[at] = uint32(at)
	}
	if _, err := t.maps.NetworkIndex.BatchUpdate(remainders, index[:], nil); err != nil {
		return fmt.Errorf("write the index of networks: %w", err)
	}
	return nil
}
