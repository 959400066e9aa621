// SPDX-License-Identifier: Apache-2.0

//go:build linux && kernel

package bpffs

import (
	"errors"
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
		check.OK(t, Mount(dir))
	}
	var stat unix.Statfs_t
	err := unix.Statfs(dir, &stat)
	check.Must(t, err == nil && stat.Type == unix.BPF_FS_MAGIC, "file system at %s: type %#x, %v; want bpf", dir, stat.Type, err)
	check.OK(t, unix.Unmount(dir, 0))
	if err := unix.Statfs(dir, &stat); err != nil || stat.Type == unix.BPF_FS_MAGIC {
		t.Fatalf("a second file system was stacked on the first")
	}
}

func TestMountNamesAMissingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	err := Mount(dir)
	check.Must(t, errors.Is(err, fs.ErrNotExist), "got %v, want a missing directory", err)
}
