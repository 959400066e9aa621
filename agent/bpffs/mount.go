//go:build linux

// Package bpffs makes the file system that BPF maps and links are pinned on.
package bpffs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Mount mounts a BPF file system at dir unless there is one. In a container dir
// must be mounted with Bidirectional propagation, or the host does not get it,
// and what is pinned there dies with the container.
func Mount(dir string) error {
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
