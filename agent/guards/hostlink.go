// SPDX-License-Identifier: Apache-2.0

package guards

import (
	"fmt"

	"github.com/fenceline/fenceline/agent/journal"
)

// GuardLink guards the node's end of an entry's host link, the interface ifname of this node, by the
// slot of the entry. The guard enforces when GuardLink returns. The guard of the entry's own
// interface must be attached before. Another call replaces the guard of any slot on ifname.
func (g *Guards) GuardLink(e *journal.Entry, ifname string) error {
	if err := g.Kernel.GuardLink(Of(e), ifname); err != nil {
		return fmt.Errorf("guard the host link of %s of container %s: %w", e.Interface, e.ContainerID, err)
	}
	return nil
}

// LinkGuarded reports whether ifname, the node's end of an entry's host link, exists and is guarded
// by the slot of the entry.
func (g *Guards) LinkGuarded(e *journal.Entry, ifname string) (bool, error) {
	guarded, err := g.Kernel.LinkGuarded(e.Slot, ifname)
	if err != nil {
		return false, fmt.Errorf("look for the guard of the host link of %s of container %s: %w", e.Interface, e.ContainerID, err)
	}
	return guarded, nil
}
