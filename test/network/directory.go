// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/interrupted"
	"github.com/fenceline/fenceline/test/must"
)

// namedDir is where iproute2 keeps named network namespaces.
const namedDir = "/run/netns"

// shareNamedDir makes the directory a mount point, as the first `ip netns add` of a machine does. After that one,
// the namespaces that were mounted there before could be neither entered nor removed by their names.
func shareNamedDir() (err error) {
	defer must.CatchIn(&err, "share %s", namedDir)
	must.OK(os.MkdirAll(namedDir, 0o755))
	dir := must.Value(os.Open(namedDir))
	defer dir.Close()
	// Two that make it one at the same time would cover each other's; iproute2 takes the same lock.
	must.OK(interrupted.Repeat(func() error { return unix.Flock(int(dir.Fd()), unix.LOCK_EX) }))
	err = unix.Mount("", namedDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) { // which says that it is no mount point
		return err
	}
	must.OK(unix.Mount(namedDir, namedDir, "none", unix.MS_BIND|unix.MS_REC, ""))
	// As a peer of a shared root, it would have each namespace mounted twice, of which Linux 6.12 may leave one.
	must.OK(unix.Mount("", namedDir, "none", unix.MS_PRIVATE|unix.MS_REC, ""))
	return unix.Mount("", namedDir, "none", unix.MS_SHARED|unix.MS_REC, "")
}
