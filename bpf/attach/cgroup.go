// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrNoHierarchy is returned by AttachCgroup if the node has no cgroup v2 hierarchy at the path.
var ErrNoHierarchy = errors.New("no cgroup v2 hierarchy is mounted there")

// AttachCgroup attaches prog to setsockopt of all sockets of the node, and pins the link at path. dir
// is the root of the cgroup v2 hierarchy, or the directory that has it as "unified". The program of a
// pinned link is replaced in place; fresh reports that there was no such link.
func AttachCgroup(path, dir string, prog *ebpf.Program) (fresh bool, err error) {
	root, id, err := hierarchy(dir)
	if err != nil {
		return false, err
	}
	info, err := infoOf(path)
	if err != nil {
		return false, err
	}
	if info != nil && info.Cgroup().CgroupId == id {
		return false, replace(path, prog)
	}
	return true, renew(path, func() (link.Link, error) {
		return link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ebpf.AttachCGroupSetsockopt, Program: prog})
	})
}

// hierarchy returns the root of the cgroup v2 hierarchy, and the kernel's ID of this cgroup.
func hierarchy(dir string) (root string, id uint64, err error) {
	for _, root := range []string{dir, filepath.Join(dir, "unified")} {
		var fs unix.Statfs_t
		if err := unix.Statfs(root, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		var st unix.Stat_t
		err := os.NewSyscallError("stat", unix.Stat(root, &st))
		return root, st.Ino, err
	}
	return "", 0, fmt.Errorf("%s: %w", dir, ErrNoHierarchy)
}
