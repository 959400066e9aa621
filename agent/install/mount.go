// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
)

// ErrDirectoryGone: a directory of the node was moved or removed after the start of the container. A
// new directory of the same name is mounted only by a new start of the container.
var ErrDirectoryGone = errors.New("the directory was moved or removed on the node, and the agent starts again to use the directory that is there now")

// mounts has, for directories of the container, the directory of the node that is mounted there. Its name
// is that in its file system. A move or a removal changes the name (proc_pid_mountinfo(5), root).
type mounts map[string]string

func mountsAt(dirs ...string) (mounts, error) {
	other := func(m *mountinfo.Info) (skip, stop bool) { return !slices.Contains(dirs, m.Mountpoint), false }
	found, err := mountinfo.GetMounts(other)
	if err != nil {
		return nil, fmt.Errorf("read which directories of the node are mounted at %v: %w", dirs, err)
	}
	at := mounts{}
	for _, m := range found {
		at[m.Mountpoint] = m.Root
	}
	return at, nil
}

// stays returns ErrDirectoryGone if the directory of a file was moved or removed since before.
func (i *Installer) stays(before mounts, files ...*kept) error {
	now, err := mountsAt(i.BinDir, i.ConfDir)
	if err != nil {
		return err
	}
	for _, k := range files {
		if dir := filepath.Dir(k.path); now[dir] != before[dir] {
			i.tell.failed(k, ErrDirectoryGone)
			return ErrDirectoryGone
		}
	}
	return nil
}
