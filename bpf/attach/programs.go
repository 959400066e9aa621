// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// Programs holds the programs of one device, by the name of the direction.
type Programs map[string]*ebpf.Program

// Close closes all programs. Links and filters hold theirs.
func (p Programs) Close() {
	for _, prog := range p {
		prog.Close()
	}
}

// Clone returns other handles of the programs, which the caller closes.
func (p Programs) Clone() (Programs, error) {
	clones := Programs{}
	for direction, prog := range p {
		clone, err := prog.Clone()
		if err != nil {
			clones.Close()
			return nil, fmt.Errorf("clone the %s program: %w", direction, err)
		}
		clones[direction] = clone
	}
	return clones, nil
}
