// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/interrupted"
)

// namedDir is where iproute2 keeps named network namespaces.
const namedDir = "/run/netns"

// shareNamedDir makes the directory a mount point, as the first `ip netns add` of
// a machine does. After that one, the namespaces that were mounted there before
// could be neither entered nor removed by their names.
func shareNamedDir() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("share %s: %w", namedDir, err)
		}
	}()
	if err := os.MkdirAll(namedDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(namedDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Two that make it one at the same time would cover each other's; iproute2
	// takes the same lock.
	if err := interrupted.Repeat(func() error { return unix.Flock(int(dir.Fd()), unix.LOCK_EX) }); err != nil {
		return err
	}
	err = unix.Mount("", namedDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) { // which says that it is no mount point
		return err
	}
	if err := unix.Mount(namedDir, namedDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	// As a peer of a shared root, it would have each namespace mounted twice, of which Linux 6.12 may leave one.
	if err := unix.Mount("", namedDir, "none", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", namedDir, "none", unix.MS_SHARED|unix.MS_REC, "")
}
