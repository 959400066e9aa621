// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// module is one loadable part of a kernel.
type module struct {
	name string
	code []byte
}

// modules reads the named modules of an unpacked kernel and what they depend on, in an order in which they load.
func modules(dir string, names []string) ([]module, error) {
	paths := map[string]string{}
	for _, root := range []string{"lib/modules", "usr/lib/modules"} {
		err := filepath.WalkDir(filepath.Join(dir, root), func(path string, _ fs.DirEntry, err error) error {
			if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok {
				paths[moduleName(name)] = path
			}
			if os.IsNotExist(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	l := loader{paths: paths, seen: map[string]bool{}}
	for _, name := range names {
		if err := l.add(moduleName(name)); err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
	}
	return l.order, nil
}

// moduleName is how modules name each other, whatever their files are called.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

type loader struct {
	paths map[string]string
	seen  map[string]bool
	order []module
}

// add appends a module after those that it depends on. What has no file is built in.
func (l *loader) add(name string) error {
	path, ok := l.paths[name]
	if l.seen[name] || !ok {
		return nil
	}
	l.seen[name] = true
	packed, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	code, err := decompress(packed)
	if err != nil {
		return err
	}
	depends, err := dependencies(code)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, d := range depends {
		if err := l.add(moduleName(d)); err != nil {
			return err
		}
	}
	l.order = append(l.order, module{name, code})
	return nil
}

// dependencies reads what a module says of itself.
func dependencies(code []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return nil, err
	}
	const section = ".modinfo"
	s := file.Section(section)
	if s == nil {
		return nil, fmt.Errorf("no section %s", section)
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
