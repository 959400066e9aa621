// SPDX-License-Identifier: Apache-2.0

package obey

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrNetworksFull: the kernel can obey the claims of no further network.
var ErrNetworksFull = errors.New("the kernel's map of networks is full; use fewer values of spec.network in pools")

// Networks are the networks whose claims the kernel obeys, and their index. The programs pass
// claims of other networks unchanged. Only one method may run at a time.
type Networks struct{ all, index *ebpf.Map }

// NewNetworks returns the networks in a map, with their index in another.
func NewNetworks(all, index *ebpf.Map) *Networks { return &Networks{all: all, index: index} }

// Set replaces the networks, also in the index. If they do not all fit, the error is
// ErrNetworksFull, and the rest is set.
func (t *Networks) Set(wanted map[uint64]bool) error {
	// Room first: the map may be full of networks that are gone.
	if err := t.removeOthers(wanted); err != nil {
		return err
	}
	var full error
	for n := range wanted {
		if err := t.Add(n); errors.Is(err, ErrNetworksFull) {
			full = err
			delete(wanted, n)
		} else if err != nil {
			return err
		}
	}
	return errors.Join(full, t.putIndex(indexOf(wanted, int(t.index.MaxEntries()))))
}

// Add makes the programs obey claims of a network.
func (t *Networks) Add(n uint64) error {
	// An update of a known network would allocate memory, and could fail.
	err := t.all.Update(n, uint8(1), ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	if errors.Is(err, unix.E2BIG) {
		err = fmt.Errorf("%w: %d", ErrNetworksFull, t.all.MaxEntries())
	}
	if err != nil {
		return fmt.Errorf("add network %016x: %w", n, err)
	}
	return nil
}

func (t *Networks) removeOthers(wanted map[uint64]bool) error {
	var stale []uint64
	var n uint64
	var unused uint8
	it := t.all.Iterate()
	for it.Next(&n, &unused) {
		if !wanted[n] {
			stale = append(stale, n)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for _, n := range stale {
		if err := t.all.Delete(n); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove network %016x: %w", n, err)
		}
	}
	return nil
}

// indexOf returns the networks by their remainder.
func indexOf(networks map[uint64]bool, size int) []uint64 {
	index := make([]uint64, size)
	for n := range networks {
		entry := &index[n%uint64(size)]
		*entry = max(*entry, n)
	}
	return index
}

// putIndex writes all entries at once.
func (t *Networks) putIndex(index []uint64) error {
	remainders := make([]uint32, len(index))
	for at := range remainders {
		remainders[at] = uint32(at)
	}
	if _, err := t.index.BatchUpdate(remainders, index, nil); err != nil {
		return fmt.Errorf("write the index of networks: %w", err)
	}
	return nil
}
