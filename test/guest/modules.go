// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"debug/elf"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/test/must"
)

// module is one loadable part of a kernel.
type module struct {
	name string
	code []byte
}

// modules reads the named modules of an unpacked kernel and what they depend on, in an order in which they load.
func modules(dir string, names []string) []module {
	paths := map[string]string{}
	for _, root := range []string{"lib/modules", "usr/lib/modules"} {
		must.OK(filepath.WalkDir(filepath.Join(dir, root), func(path string, _ fs.DirEntry, err error) error {
			if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok {
				paths[moduleName(name)] = path
			}
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}))
	}
	l := loader{paths: paths, seen: map[string]bool{}}
	for _, name := range names {
		l.add(moduleName(name))
	}
	return l.order
}

// moduleName is how modules name each other, whatever their files are called.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

type loader struct {
	paths map[string]string
	seen  map[string]bool
	order []module
}

// add appends a module after those that it depends on. What has no file is built in.
func (l *loader) add(name string) {
	path, ok := l.paths[name]
	if l.seen[name] || !ok {
		return
	}
	l.seen[name] = true
	code, err := decompress(must.Value(os.ReadFile(path)))
	must.Done(err, "unpack %s", path)
	depends, err := dependencies(code)
	must.Done(err, "read %s", path)
	for _, d := range depends {
		l.add(moduleName(d))
	}
	l.order = append(l.order, module{name, code})
}

// dependencies reads what a module says of itself.
func dependencies(code []byte) (_ []string, err error) {
	defer must.Catch(&err)
	const section = ".modinfo"
	s := must.Value(elf.NewFile(bytes.NewReader(code))).Section(section)
	must.That(s != nil, "no section %s", section)
	for field := range strings.SplitSeq(string(must.Value(s.Data())), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
