// SPDX-License-Identifier: Apache-2.0

//go:build linux

package install

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MountBPFFS mounts a BPF file system at dir unless there is one. In a container, dir
// must be mounted with Bidirectional propagation. Otherwise the host does not see
// the file system, and its pins end with the container.
func MountBPFFS(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("mount bpffs at %s: %w", dir, &os.PathError{Op: "statfs", Path: dir, Err: err})
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs at %s: %w", dir, err)
	}
	return nil
}
