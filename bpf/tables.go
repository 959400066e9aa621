// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"maps"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/fenceline/fenceline/bpf/guard"
	"github.com/fenceline/fenceline/bpf/obey"
)

// tables are the maps that the programs and this process share: leases, states, slots, the gate,
// keys, networks, sightings.
type tables struct {
	*leaseTables
	*slotTable
	*sourceTables
	*obey.Ceiling

	// shared are the maps by name, for loading programs.
	shared   map[string]*ebpf.Map
	maps     *observerMaps
	networks *obey.Networks
	guards   *guard.Shared

	// mu guards the writes to the maps that only user space writes, the pins of observers, and the
	// fields of Guards. The tables of slots and of sources have it too.
	mu *sync.Mutex
	// guardedSlots returns the slots that guard a device, for the gate. It needs mu.
	guardedSlots func() ([]uint32, error)
}

// leaseTables have the leases, and what was heard of their addresses.
type leaseTables struct{ maps *observerMaps }

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

func newTables(shared map[string]*ebpf.Map) (*tables, error) {
	m := &observerMaps{}
	if err := (&ebpf.Collection{Maps: maps.Clone(shared)}).Assign(m); err != nil {
		return nil, err
	}
	mu := &sync.Mutex{}
	slots := &slotTable{maps: m, mu: mu}
	return &tables{
		leaseTables: &leaseTables{maps: m}, slotTable: slots,
		sourceTables: &sourceTables{
			slotTable: slots,
			sources:   map[uint32]slotSources{}, trusted: map[uint32][][3]uint16{}, locals: map[observerLocalKey]uint32{},
		},
		Ceiling: obey.NewCeiling(m.Ceiling), networks: obey.NewNetworks(m.Networks, m.NetworkIndex), guards: guard.NewShared(shared),
		shared: shared, maps: m, mu: mu,
	}, nil
}
