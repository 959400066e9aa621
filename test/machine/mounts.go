// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/must"
)

// mount is one call of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() {
	must.Done(unix.Mount(m.source, m.target, m.kind, m.flags, m.data), "mount %s on %s", m.source, m.target)
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
func (c Config) mountAll() (err error) {
	defer must.Catch(&err)
	disk := func(name string) string { return filepath.Join(c.Dir, "disk", name) }
	makeDirs(disk("etc.upper"), disk("etc.work"), disk("cni"), disk("opt"), filepath.Join(c.Dir, "sysctl"))
	makeVar(disk("var"))
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
		m.do()
	}
	makeDirs(cniConfigDir, cniPluginDir, "/run/netns", "/run/lock", filepath.Dir(daemonsFile))
	// containerd watches this directory, and must not miss a change because of an overlay.
	mount{disk("cni"), cniConfigDir, "", unix.MS_BIND, ""}.do()
	emptyDir(cniConfigDir)
	c.mountSysctls()
	// kubelet hands mounts to pods in both directions.
	mount{"none", "/", "", unix.MS_REC | unix.MS_SHARED, ""}.do()
	return nil
}

func (c Config) mountSysctls() {
	for name, value := range sysctls() {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
			continue // not in this kernel
		}
		source := filepath.Join(c.Dir, "sysctl", strings.ReplaceAll(name, "/", "."))
		must.OK(os.WriteFile(source, []byte(value+"\n"), 0o644))
		mount{source, target, "", unix.MS_BIND, ""}.do()
	}
}

// makeVar lays out an empty /var.
func makeVar(dir string) {
	for _, name := range []string{"lib/kubelet", "lib/containerd", "lib/containers", "lib/cni", "log/pods", "log/containers", "cache", "tmp"} {
		makeDirs(filepath.Join(dir, name))
	}
	must.OK(os.Chmod(filepath.Join(dir, "tmp"), 0o1777))
	for name, target := range map[string]string{"run": "/run", "lock": "/run/lock"} {
		err := os.Symlink(target, filepath.Join(dir, name))
		must.That(err == nil || errors.Is(err, fs.ErrExist), "%w", err)
	}
}

func makeDirs(dirs ...string) {
	for _, dir := range dirs {
		must.OK(os.MkdirAll(dir, 0o755))
	}
}

func emptyDir(dir string) {
	entries := must.Value(os.ReadDir(dir))
	for _, e := range entries {
		must.OK(os.RemoveAll(filepath.Join(dir, e.Name())))
	}
}
