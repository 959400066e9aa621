// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ErrNetworksFull: the kernel can obey the claims of no further network.
var ErrNetworksFull = errors.New("the kernel's map of networks is full; use fewer values of spec.network in pools")

// SetNetworks sets the networks of this cluster. The networks of installed leases stay too, since a
// pool may be deleted before its pods. The programs pass claims of other networks unchanged. If the
// networks do not all fit, the error is ErrNetworksFull, and the rest is set.
func (ls *Leases) SetNetworks(networks []uint64) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	wanted := map[uint64]bool{}
	leases, err := ls.All()
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
	return ls.networks.set(wanted)
}

// networks are the networks whose claims the kernel obeys, and their index. The programs pass
// claims of other networks unchanged. Only one method may run at a time.
type networks struct{ all, index *ebpf.Map }

// set replaces the networks, also in the index. If they do not all fit, the error is
// ErrNetworksFull, and the rest is set.
func (ns *networks) set(wanted map[uint64]bool) error {
	// Room first: the map may be full of networks that are gone.
	if err := ns.removeOthers(wanted); err != nil {
		return err
	}
	var full error
	for n := range wanted {
		if err := ns.add(n); errors.Is(err, ErrNetworksFull) {
			full = err
			delete(wanted, n)
		} else if err != nil {
			return err
		}
	}
	return errors.Join(full, ns.putIndex(networkIndexOf(wanted, int(ns.index.MaxEntries()))))
}

// add makes the programs obey claims of a network.
func (ns *networks) add(n uint64) error {
	// An update of a known network would allocate memory, and could fail.
	err := ns.all.Update(n, uint8(1), ebpf.UpdateNoExist)
	if errors.Is(err, ebpf.ErrKeyExist) {
		return nil
	}
	if errors.Is(err, unix.E2BIG) {
		err = fmt.Errorf("%w: %d", ErrNetworksFull, ns.all.MaxEntries())
	}
	if err != nil {
		return fmt.Errorf("add network %016x: %w", n, err)
	}
	return nil
}

func (ns *networks) removeOthers(wanted map[uint64]bool) error {
	present, err := entriesOf[uint64, uint8](ns.all)
	if err != nil {
		return fmt.Errorf("list networks: %w", err)
	}
	for n := range present {
		if wanted[n] {
			continue
		}
		if err := deleteEntry(ns.all, n); err != nil {
			return fmt.Errorf("remove network %016x: %w", n, err)
		}
	}
	return nil
}

// networkIndexOf returns the networks by their remainder.
func networkIndexOf(networks map[uint64]bool, size int) []uint64 {
	index := make([]uint64, size)
	for n := range networks {
		entry := &index[n%uint64(size)]
		*entry = max(*entry, n)
	}
	return index
}

// putIndex writes all entries at once.
func (ns *networks) putIndex(index []uint64) error {
	remainders := make([]uint32, len(index))
	for at := range remainders {
		remainders[at] = uint32(at)
	}
	if _, err := ns.index.BatchUpdate(remainders, index, nil); err != nil {
		return fmt.Errorf("write the index of networks: %w", err)
	}
	return nil
}
