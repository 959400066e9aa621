// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/must"
)

// Places in the guest.
const (
	initPath   = "/init"
	taskPath   = "/task.json"
	modulesDir = "/modules"
)

// task is what the guest's first process has to do.
type task struct {
	Program string
	Args    []string
	Dir     string
	Modules []string // paths, in the order in which they load
	// Environment is added to the program's.
	Environment []string
	Interface   Interface
	// Output and Status are the serial lines of what the program prints, and of its exit code.
	Output, Status string
}

// writeInitrd writes the guest's files as the archive that the kernel unpacks before it starts /init.
func (g Guest) writeInitrd(path string, m machine) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	defer must.Catch(&err)
	a := archive{out, map[string]bool{"/": true}}
	t := task{Program: g.Program, Args: g.Args, Dir: g.Dir, Environment: g.Environment, Interface: g.Interface,
		Output: m.output, Status: m.status}
	for _, m := range modules(g.Kernel, g.Modules) {
		file := filepath.Join(modulesDir, m.name)
		t.Modules = append(t.Modules, file)
		a.add(file, 0o644, m.code)
	}
	a.add(initPath, 0o755, must.Value(os.ReadFile(g.Init)))
	a.add(taskPath, 0o644, must.Value(json.Marshal(t)))
	for _, dir := range append(mountPoints(), g.Dir) {
		a.directory(dir)
	}
	for _, file := range g.Files {
		a.copy(file)
	}
	a.entry("TRAILER!!!", 0, 1, nil) // the name of the end
	return nil
}

// archive is a cpio archive in the format newc, which the kernel reads (see
// Documentation/driver-api/early-userspace/buffer-format.rst in its sources).
type archive struct {
	io.Writer
	directories map[string]bool
}

// copy adds a file of this machine, or all that is in a directory.
func (a archive) copy(root string) {
	must.OK(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			a.add(path, must.Value(d.Info()).Mode().Perm(), must.Value(os.ReadFile(path)))
		}
		return err
	}))
}

func (a archive) add(path string, mode fs.FileMode, data []byte) {
	a.directory(filepath.Dir(path))
	a.entry(path, unix.S_IFREG|uint32(mode), 1, data)
}

// directory adds a directory and those above it once each: the kernel makes none by itself.
func (a archive) directory(path string) {
	if path == "" || a.directories[path] {
		return
	}
	a.directories[path] = true
	a.directory(filepath.Dir(path))
	a.entry(path, unix.S_IFDIR|0o755, 2, nil)
}

func (a archive) entry(path string, mode uint32, links int, data []byte) {
	must.That(len(data) <= math.MaxUint32, "add %s: %d bytes are more than an archive can name", path, len(data))
	// The fields that are 0: inode, user and group, time, numbers of devices, checksum.
	header := fmt.Appendf(nil, "070701%08x%08x%016x%08x%08x%08x%032x%08x%08x%s\x00",
		0, mode, 0, links, 0, len(data), 0, len(path)+1, 0, path)
	for _, part := range [][]byte{header, data} {
		_, err := a.Write(append(part, make([]byte, -len(part)&3)...))
		must.Done(err, "add %s", path)
	}
}
