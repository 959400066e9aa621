// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is one call of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
	}
	return nil
}

// sysctls are values that kubelet wants and would otherwise set for the whole
// machine. The node sees files of its own that already hold them.
func sysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

// mountAll gives the node its own view of the file system. The process must be
// the first of its PID namespace and alone in its mount namespace.
func (c Config) mountAll() error {
	disk := func(name string) string { return filepath.Join(c.Dir, "disk", name) }
	if err := makeDirs(disk("etc.upper"), disk("etc.work"), disk("cni"), disk("opt"), filepath.Join(c.Dir, "sysctl")); err != nil {
		return err
	}
	if err := makeVar(disk("var")); err != nil {
		return err
	}
	overlay := "lowerdir=/etc,upperdir=" + disk("etc.upper") + ",workdir=" + disk("etc.work")
	mounts := []mount{
		// Nothing that is mounted from here on reaches this machine.
		{"none", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"etc", "/etc", "overlay", 0, overlay},
		{disk("var"), "/var", "", unix.MS_BIND, ""},
		{disk("opt"), "/opt", "", unix.MS_BIND, ""},
		{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755,size=64m"},
		{"bpf", "/sys/fs/bpf", "bpf", 0, "mode=700"},
	}
	for _, m := range mounts {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := makeDirs(cniConfigDir, cniPluginDir, "/run/netns", "/run/lock", filepath.Dir(daemonsFile)); err != nil {
		return err
	}
	// containerd watches this directory, and must not miss a change because of an overlay.
	if err := (mount{disk("cni"), cniConfigDir, "", unix.MS_BIND, ""}).do(); err != nil {
		return err
	}
	if err := emptyDir(cniConfigDir); err != nil {
		return err
	}
	if err := c.mountSysctls(); err != nil {
		return err
	}
	// kubelet hands mounts to pods in both directions.
	return mount{"none", "/", "", unix.MS_REC | unix.MS_SHARED, ""}.do()
}

func (c Config) mountSysctls() error {
	for name, value := range sysctls() {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			continue // not in this kernel
		}
		source := filepath.Join(c.Dir, "sysctl", strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(source, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := (mount{source, target, "", unix.MS_BIND, ""}).do(); err != nil {
			return err
		}
	}
	return nil
}

// makeVar lays out an empty /var.
func makeVar(dir string) error {
	for _, name := range []string{"lib/kubelet", "lib/containerd", "lib/containers", "lib/cni", "log/pods", "log/containers", "cache", "tmp"} {
		if err := makeDirs(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(dir, "tmp"), 0o1777); err != nil {
		return err
	}
	for name, target := range map[string]string{"run": "/run", "lock": "/run/lock"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func makeDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
