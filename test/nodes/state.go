// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// immutable is FS_IMMUTABLE_FL of linux/fs.h.
const immutable = 0x10

// EmptyState removes everything from the agent's state directory, as a clean-up script does.
func (n *Node) EmptyState() error {
	files, err := filepath.Glob(filepath.Join(n.state(), "*"))
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

// ReplaceDisk mounts an empty file system over the state directory. It has few bytes and few inodes.
func (n *Node) ReplaceDisk() error {
	if err := unix.Mount("tmpfs", n.state(), "tmpfs", 0, "size=128k,nr_inodes=64"); err != nil {
		return fmt.Errorf("mount a file system over %s: %w", n.state(), err)
	}
	n.cluster.t.Cleanup(func() { n.cluster.check(unix.Unmount(n.state(), unix.MNT_DETACH)) })
	return nil
}

// SetDiskReadOnly makes the disk of ReplaceDisk read-only, or undoes that.
func (n *Node) SetDiskReadOnly(is bool) error {
	flags := uintptr(unix.MS_REMOUNT)
	if is {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("", n.state(), "", flags, "")
}

// SetReadOnly makes the directory of the journal a read-only file system, or undoes that.
func (n *Node) SetReadOnly(is bool) error {
	journal := filepath.Join(n.state(), "journal")
	if !is {
		return unix.Unmount(journal, unix.MNT_DETACH)
	}
	return unix.Mount("tmpfs", journal, "tmpfs", unix.MS_RDONLY, "")
}

// SetImmutable sets the attribute i of the journal directory, which forbids new files even to root,
// or removes it.
func (n *Node) SetImmutable(is bool) error {
	dir, err := os.Open(filepath.Join(n.state(), "journal"))
	if err != nil {
		return err
	}
	defer dir.Close()
	flags := uint32(0)
	if is {
		flags = immutable
	}
	return unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, int(flags))
}

// Fill fills the disk of ReplaceDisk with one file, or its inodes with empty files. undo removes
// them.
func (n *Node) Fill(inodes bool) (undo func() error, err error) {
	dir := filepath.Join(n.state(), "others")
	undo = func() error { return os.RemoveAll(dir) }
	if err := os.Mkdir(dir, 0o700); err != nil {
		return undo, err
	}
	if !inodes {
		err = os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o600)
	}
	for i := 0; inodes && err == nil; i++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600)
	}
	if errors.Is(err, unix.ENOSPC) {
		err = nil
	}
	return undo, err
}
