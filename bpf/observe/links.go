// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"

	"github.com/fenceline/fenceline/bpf/attach"
)

// Links returns the kernel's IDs of the two attachments of a parent's observer, 0 for a missing
// one. The kernel never reuses an ID. If two calls return the same IDs, the observer saw every
// frame in between: after the observer was removed, or another program hid frames from it, Attach
// makes a new attachment.
func (p *Parents) Links(parent int) ([2]uint32, error) {
	if p.NoTCX.Load() {
		ids, err := attach.FirstFilters(parent)
		if err != nil {
			return ids, fmt.Errorf("read the attachments of the observer of ifindex %d: %w", parent, err)
		}
		return ids, nil
	}
	var ids [2]uint32
	for i, d := range attach.Directions {
		id, err := p.Pins.Observer(parent).LinkID(d)
		if err != nil {
			return [2]uint32{}, fmt.Errorf("read the attachments of the observer of ifindex %d: %w", parent, err)
		}
		ids[i] = id
	}
	return ids, nil
}
