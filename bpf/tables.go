// SPDX-License-Identifier: Apache-2.0

package bpf

import "sync"

// tables are the maps that the programs and this process share: leases, states, slots, the gate,
// keys, networks, sightings.
type tables struct {
	maps *observerMaps

	// mu guards the writes to the maps that only user space writes, the pins of observers, and the
	// fields of guards and stages.
	mu sync.Mutex
	// guardedSlots returns the slots that guard a device, for the gate. It needs mu.
	guardedSlots func() ([]uint32, error)
}
