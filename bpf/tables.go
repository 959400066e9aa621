// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"sync"
	"sync/atomic"
)

// tables are the maps that the programs and this process share: leases, states, slots, the gate,
// keys, networks, sightings.
type tables struct {
	*leaseTables
	*networkTable
	*slotTable
	*sourceTables

	maps *observerMaps

	// mu guards the writes to the maps that only user space writes, the pins of observers, and the
	// fields of guards and stages. The tables of slots and of sources have it too.
	mu *sync.Mutex
	// guardedSlots returns the slots that guard a device, for the gate. It needs mu.
	guardedSlots func() ([]uint32, error)

	// known is the newest revision that KnowRevision has told the kernel.
	known atomic.Uint64
}

// leaseTables have the leases, and what was heard of their addresses.
type leaseTables struct{ maps *observerMaps }

// networkTable has the networks whose claims the kernel obeys, and their index.
type networkTable struct{ maps *observerMaps }

// slotTable has the records of the slots.
type slotTable struct {
	maps *observerMaps
	mu   *sync.Mutex
}

// sourceTables have the allowed sources of this node's frames, and the counts of other frames.
type sourceTables struct {
	*slotTable
	// sources are those of the slots with a source guard. trusted are the MACs of other devices, by
	// segment. locals are the entries of both in the kernel, and index is their index.
	sources map[uint32]slotSources
	trusted map[uint32][][3]uint16
	locals  map[observerLocalKey]uint32
	index   *localIndex
}

func newTables(m *observerMaps) *tables {
	mu := &sync.Mutex{}
	slots := &slotTable{maps: m, mu: mu}
	return &tables{
		leaseTables: &leaseTables{maps: m}, networkTable: &networkTable{maps: m}, slotTable: slots,
		sourceTables: &sourceTables{
			slotTable: slots,
			sources:   map[uint32]slotSources{}, trusted: map[uint32][][3]uint16{}, locals: map[observerLocalKey]uint32{},
		},
		maps: m, mu: mu,
	}
}
