// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"

	"github.com/fenceline/fenceline/bpf/attach"
)

// Links returns the kernel's IDs of the two attachments of a parent's observer, 0 for a missing one.
// The kernel never reuses an ID. If two calls return the same IDs, the observer saw every frame in
// between: Attach makes a new attachment after the observer was removed or hidden from frames.
func (p *Parents) Links(parent int) (ids [2]uint32, err error) {
	if p.NoTCX.Load() {
		ids, err = attach.FirstFilters(parent)
	} else {
		for i, d := range attach.Directions {
			if ids[i], err = p.Pins.Observer(parent).LinkID(d); err != nil {
				break
			}
		}
	}
	if err != nil {
		return [2]uint32{}, fmt.Errorf("read the attachments of the observer of ifindex %d: %w", parent, err)
	}
	return ids, nil
}
