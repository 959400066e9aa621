// SPDX-License-Identifier: Apache-2.0

//go:build linux && kernel

package install

import (
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

func TestMountMakesOneFileSystem(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	for range 2 {
		check.OK(t, MountBPFFS(dir))
	}
	var stat unix.Statfs_t
	check.OK(t, unix.Statfs(dir, &stat))
	check.Must(t, stat.Type == unix.BPF_FS_MAGIC, "the file system has type %#x", stat.Type)
	check.OK(t, unix.Unmount(dir, 0))
	check.OK(t, unix.Statfs(dir, &stat))
	check.That(t, stat.Type != unix.BPF_FS_MAGIC, "a second file system was stacked on the first")
}

func TestMountNamesAMissingDirectory(t *testing.T) {
	check.Is(t, MountBPFFS(filepath.Join(t.TempDir(), "absent")), fs.ErrNotExist, "got")
}
