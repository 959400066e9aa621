// SPDX-License-Identifier: Apache-2.0

package bpf

import "fmt"

// SetNetworks sets the networks of this cluster. The networks of installed leases stay too, since a
// pool may be deleted before its pods. The programs pass claims of other networks unchanged. If the
// networks do not all fit, the error is obey.ErrNetworksFull, and the rest is set.
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
	return t.networks.Set(wanted)
}
