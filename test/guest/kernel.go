// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/test/must"
)

// Offsets into a bzImage, Documentation/arch/x86/boot.rst.
const (
	setupSectors  = 0x1f1 // one byte, 0 stands for 4
	payloadOffset = 0x248 // 32 bits, from the end of the setup
	payloadLength = 0x24c
	sector        = 512
)

const elfMagic = "\x7fELF"

// bootable returns the path of the kernel as an ELF file, which QEMU enters directly (PVH): to unpack a bzImage in
// an emulated processor takes longer than all the rest of the boot. It is kept beside the package's own file.
func bootable(dir string) (_ string, err error) {
	defer must.Catch(&err)
	path := filepath.Join(dir, "vmlinux")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	image := must.Value(findKernel(dir))
	elf, err := unpackKernel(must.Value(os.ReadFile(image)))
	must.Done(err, "unpack %s", image)
	next := must.Value(os.CreateTemp(dir, "vmlinux-"))
	_, err = next.Write(elf)
	if err := errors.Join(err, next.Close()); err != nil {
		return "", errors.Join(err, os.Remove(next.Name()))
	}
	return path, os.Rename(next.Name(), path)
}

// findKernel looks where packages put their kernel: in /boot, or since 7.x beside its modules.
func findKernel(dir string) (string, error) {
	for _, pattern := range []string{"boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) > 0 {
			return found[0], err
		}
	}
	return "", fmt.Errorf("no kernel below %s", dir)
}

// unpackKernel returns the ELF file that a bzImage carries.
func unpackKernel(image []byte) ([]byte, error) {
	if len(image) < payloadLength+4 {
		return nil, fmt.Errorf("%d bytes are no kernel", len(image))
	}
	sectors := int(image[setupSectors])
	if sectors == 0 {
		sectors = 4
	}
	from := (sectors+1)*sector + int(binary.LittleEndian.Uint32(image[payloadOffset:]))
	to := from + int(binary.LittleEndian.Uint32(image[payloadLength:]))
	if from > to || to > len(image) {
		return nil, fmt.Errorf("its payload, %d to %d, exceeds %d bytes", from, to, len(image))
	}
	// The length of what was packed follows it, at which the tools take offence. What they wrote is whole.
	elf, err := decompress(image[from:to])
	if !bytes.HasPrefix(elf, []byte(elfMagic)) {
		return nil, fmt.Errorf("its payload is no ELF file: %w", err)
	}
	return elf, nil
}

// decompress unpacks what begins like the output of xz, zstd or gzip, and returns anything else as it is.
func decompress(packed []byte) ([]byte, error) {
	tool := ""
	for magic, name := range map[string]string{"\xfd7zXZ\x00": "xz", "\x28\xb5\x2f\xfd": "zstd", "\x1f\x8b": "gzip"} {
		if bytes.HasPrefix(packed, []byte(magic)) {
			tool = name
		}
	}
	if tool == "" {
		return packed, nil
	}
	cmd := exec.Command(tool, "--decompress", "--stdout")
	cmd.Stdin = bytes.NewReader(packed)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", tool, err, strings.TrimSpace(stderr.String()))
	}
	return out, err
}

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

// add appends a module after those that it depends on. A module without a file is built in.
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
