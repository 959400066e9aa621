// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cavaliergopher/cpio"
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
}

// writeInitrd writes the guest's files as the archive that the kernel unpacks before it starts /init.
func (g Guest) writeInitrd(path string) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	a := archive{cpio.NewWriter(out), map[string]bool{"/": true}}
	mods, err := modules(g.Kernel, g.Modules)
	if err != nil {
		return err
	}
	t := task{Program: g.Program, Args: g.Args, Dir: g.Dir}
	for _, m := range mods {
		file := filepath.Join(modulesDir, m.name)
		t.Modules = append(t.Modules, file)
		if err := a.add(file, cpio.TypeReg|0o644, m.code); err != nil {
			return err
		}
	}
	init, err := os.ReadFile(g.Init)
	if err != nil {
		return err
	}
	if err := a.add(initPath, cpio.TypeReg|0o755, init); err != nil {
		return err
	}
	what, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := a.add(taskPath, cpio.TypeReg|0o644, what); err != nil {
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
	return a.Close()
}

// archive is a cpio archive of the sort that the kernel reads.
type archive struct {
	*cpio.Writer
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
		return a.add(path, cpio.TypeReg|cpio.FileMode(info.Mode().Perm()), data)
	})
}

func (a archive) add(path string, mode cpio.FileMode, data []byte) error {
	if err := a.directory(filepath.Dir(path)); err != nil {
		return err
	}
	if err := a.WriteHeader(&cpio.Header{Name: path, Mode: mode, Size: int64(len(data)), Links: 1}); err != nil {
		return fmt.Errorf("add %s: %w", path, err)
	}
	if _, err := a.Write(data); err != nil {
		return fmt.Errorf("add %s: %w", path, err)
	}
	return nil
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
	return a.WriteHeader(&cpio.Header{Name: path, Mode: cpio.TypeDir | 0o755, Links: 2})
}
