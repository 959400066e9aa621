// SPDX-License-Identifier: Apache-2.0

package attach

import "github.com/cilium/ebpf"

// Programs holds two programs, by the name of the direction.
type Programs map[string]*ebpf.Program

// Close closes all programs. Links and filters hold theirs.
func (p Programs) Close() {
	for _, prog := range p {
		prog.Close()
	}
}
