// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestAGuestGivesNoVerdictUnlessItsStatusIsAWholeLine(t *testing.T) {
	for name, tc := range map[string]struct {
		machine string // what stands for QEMU
		code    int
		none    bool
	}{
		"a program that passed":           {machine: "echo 0 >&4", code: 0},
		"a program that failed":           {machine: "echo 1 >&4", code: 1},
		"a panic":                         {machine: "echo Kernel panic >&3", none: true},
		"a verdict cut short":             {machine: "printf 1 >&4", none: true},
		"a QEMU that complains":           {machine: "echo 0 >&4; exit 1", none: true},
		"a guest that hangs":              {machine: "exec sleep 600", none: true},
		"a hang after something was said": {machine: "echo Kernel panic >&3; exec sleep 600", none: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := imitation(t, "#!/bin/sh\n"+tc.machine+"\n")
			ctx := t.Context()
			if strings.Contains(tc.machine, "sleep") {
				limit := 100 * time.Millisecond
				if strings.Contains(tc.machine, "panic") {
					limit = time.Minute // it ends once that is heard
				}
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
				g.Console = console(cancel)
			}
			code, err := g.Run(ctx)
			check.Must(t, errors.Is(err, ErrNoVerdict) == tc.none && (tc.none || err == nil), "got %v", err)
			check.Equal(t, code, tc.code, "code")
			check.That(t, !strings.Contains(tc.machine, "panic") || strings.Contains(err.Error(), "Kernel panic"), "the console is not in %q", err)
		})
	}
}

// console is called for what a guest says.
type console func()

func (c console) Write(text []byte) (int, error) { c(); return len(text), nil }

// imitation is a guest whose QEMU is a script.
func imitation(t *testing.T, script string) Guest {
	t.Helper()
	g := Guest{Arch: "amd64", QEMU: t.TempDir(), Kernel: t.TempDir(), Output: io.Discard, Console: io.Discard, Dir: "/work"}
	g.Init = filepath.Join(t.TempDir(), "init")
	for path, text := range map[string]string{
		filepath.Join(g.QEMU, "usr/bin/qemu-system-x86_64"): script,
		filepath.Join(g.Kernel, "vmlinux"):                  elfMagic,
		g.Init:                                              "init",
	} {
		check.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check.OK(t, os.WriteFile(path, []byte(text), 0o755))
	}
	return g
}

func TestTheELFFileOfABzImage(t *testing.T) {
	payload := elfMagic + " and the rest"
	for name, tc := range map[string]struct {
		sectors byte
		length  int
		ok      bool
	}{
		"one sector of setup":           {1, len(payload), true},
		"none stands for four":          {0, len(payload), true},
		"a payload that exceeds it all": {1, 1 << 20, false},
		"a payload that is no ELF file": {2, len(payload), false},
	} {
		t.Run(name, func(t *testing.T) {
			image := make([]byte, 8*sector)
			image[setupSectors] = tc.sectors
			binary.LittleEndian.PutUint32(image[payloadOffset:], 16)
			binary.LittleEndian.PutUint32(image[payloadLength:], uint32(tc.length))
			setup := map[byte]int{0: 5, 1: 2, 2: 2}[tc.sectors]
			copy(image[setup*sector+16:], payload)
			elf, err := unpackKernel(image)
			check.That(t, (err == nil) == tc.ok && (!tc.ok || string(elf) == payload), "got %q, %v", elf, err)
		})
	}
}
