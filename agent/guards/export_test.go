// SPDX-License-Identifier: Apache-2.0

package guards

import "github.com/fenceline/fenceline/bpf"

// SweepSlot sweeps one slot by what the kernel held a moment ago.
func (g *Guards) SweepSlot(slot uint32, leases map[bpf.Key]bpf.Lease) error {
	return g.sweepSlot(slot, leases)
}
