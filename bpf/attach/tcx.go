// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// HasTCX reports whether the kernel has tcx (Linux 6.6, or a backport). It returns false only if
// the query is refused as unknown. After any other error, the attempt to attach decides.
func HasTCX() bool {
	const loopback = 1
	_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress})
	return !errors.Is(err, unix.EINVAL) && !errors.Is(err, ebpf.ErrNotSupported)
}

// Others returns the other programs on a device's tcx hook, in the order in which they see a frame.
func (p Pins) Others(d Direction, ifindex int) (names []string, err error) {
	chain, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: d.Hook})
	if err != nil {
		return nil, NoDevice(fmt.Errorf("query %s chain of ifindex %d: %w", d.Name, ifindex, err))
	}
	own, err := p.LinkID(d)
	if err != nil {
		return nil, err
	}
	for _, attached := range chain.Programs {
		if id, ok := attached.LinkID(); ok && own != 0 && uint32(id) == own {
			continue
		}
		names = append(names, fmt.Sprintf("%s %s", d.Name, nameOf(attached.ID)))
	}
	return names, nil
}

// nameOf returns the name and the ID of a program, or the ID alone if it is gone.
func nameOf(id ebpf.ProgramID) string {
	prog, err := ebpf.NewProgramFromID(id)
	if err == nil {
		defer prog.Close()
		if info, err := prog.Info(); err == nil && info.Name != "" {
			return fmt.Sprintf("%s (ID %d)", info.Name, id)
		}
	}
	return fmt.Sprintf("program %d", id)
}
