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
	// Environment is added to the program's. Uplink: an interface leads to the server.
	Environment []string
	Uplink      bool
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
	a := archive{out, map[string]bool{"/": true}}
	mods, err := modules(g.Kernel, g.Modules)
	if err != nil {
		return err
	}
	t := task{Program: g.Program, Args: g.Args, Dir: g.Dir, Environment: g.Environment, Uplink: g.Dial != "",
		Output: m.output, Status: m.status}
	for _, m := range mods {
		file := filepath.Join(modulesDir, m.name)
		t.Modules = append(t.Modules, file)
		if err := a.add(file, 0o644, m.code); err != nil {
			return err
		}
	}
	init, err := os.ReadFile(g.Init)
	if err != nil {
		return err
	}
	if err := a.add(initPath, 0o755, init); err != nil {
		return err
	}
	what, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := a.add(taskPath, 0o644, what); err != nil {
		return err
	}
	for _, dir := range append(mountPoints(), g.Dir) {
		if err := a.directory(dir); err != nil {
			return err
		}
	}
	for _, file := range g.Files {
		if err := a.copy(file); err != nil {
			return err
		}
	}
	return a.entry("TRAILER!!!", 0, 1, nil) // the name of the end
}

// archive is a cpio archive in the format newc, which the kernel reads (see
// Documentation/driver-api/early-userspace/buffer-format.rst in its sources).
type archive struct {
	io.Writer
	directories map[string]bool
}

// copy adds a file of this machine, or all that is in a directory.
func (a archive) copy(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return a.add(path, info.Mode().Perm(), data)
	})
}

func (a archive) add(path string, mode fs.FileMode, data []byte) error {
	if err := a.directory(filepath.Dir(path)); err != nil {
		return err
	}
	return a.entry(path, unix.S_IFREG|uint32(mode), 1, data)
}

// directory adds a directory and those above it once each: the kernel makes none by itself.
func (a archive) directory(path string) error {
	if path == "" || a.directories[path] {
		return nil
	}
	a.directories[path] = true
	if err := a.directory(filepath.Dir(path)); err != nil {
		return err
	}
	return a.entry(path, unix.S_IFDIR|0o755, 2, nil)
}

func (a archive) entry(path string, mode uint32, links int, data []byte) error {
	if len(data) > math.MaxUint32 {
		return fmt.Errorf("add %s: %d bytes are more than an archive can name", path, len(data))
	}
	// The fields that are 0: inode, user and group, time, numbers of devices, checksum.
	header := fmt.Appendf(nil, "070701%08x%08x%016x%08x%08x%08x%032x%08x%08x%s\x00",
		0, mode, 0, links, 0, len(data), 0, len(path)+1, 0, path)
	for _, part := range [][]byte{header, data} {
		if _, err := a.Write(append(part, make([]byte, -len(part)&3)...)); err != nil {
			return fmt.Errorf("add %s: %w", path, err)
		}
	}
	return nil
}
