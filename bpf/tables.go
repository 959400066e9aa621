// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"sync"
	"sync/atomic"
)

// tables are the maps that the programs and this process share: leases, states, slots, the gate,
// keys, networks, sightings.
type tables struct {
	maps *observerMaps

	// mu guards the writes to the maps that only user space writes, the pins of observers, and the
	// fields of guards and stages.
	mu sync.Mutex
	// guardedSlots returns the slots that guard a device, for the gate. It needs mu.
	guardedSlots func() ([]uint32, error)

	// known is the newest revision that KnowRevision has told the kernel.
	known atomic.Uint64

	// sources are those of the slots with a source guard. trusted are the MACs of other devices, by
	// segment. locals is what the kernel was told of both, and index its index.
	sources map[uint32]slotSources
	trusted map[uint32][][3]uint16
	locals  map[observerLocalKey]uint32
	index   *localIndex
}
