// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopLimit is how long the kernel may take to stop a process.
const stopLimit = 20 * time.Second

// ShiftClock shifts the clock of this process and of all its threads against the clock of the machine.
// It shifts only CLOCK_REALTIME, and only for callers of the vDSO, such as Go and libc. Programs that
// the process starts have the clock of the machine.
func (p Process) ShiftClock(ctx context.Context, by time.Duration) error {
	if err := p.shiftClock(ctx, by); err != nil {
		return fmt.Errorf("shift the clock of %s (%d) by %s: %w", p.Name, p.PID, by, err)
	}
	return nil
}

func (p Process) shiftClock(ctx context.Context, by time.Duration) (err error) {
	code, err := clockGettime(by)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(p.file("mem"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	defer func() { err = errors.Join(err, p.Signal(syscall.SIGCONT)) }()
	for {
		if err := p.pause(ctx); err != nil {
			return err
		}
		at, err := p.findClockGettime(memory)
		if err != nil {
			return err
		}
		within, err := p.runsIn(at, at+uint64(len(code)))
		if err != nil {
			return err
		}
		if !within {
			_, err := memory.WriteAt(code, int64(at))
			return err
		}
		if err := errors.Join(p.Signal(syscall.SIGCONT), ctx.Err()); err != nil {
			return err
		}
	}
}

// clockGettime returns the code that replaces clock_gettime of the vDSO: the system call, and for
// CLOCK_REALTIME an addition.
func clockGettime(by time.Duration) ([]byte, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("architecture %s is not supported", runtime.GOARCH)
	}
	code := []byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi (CLOCK_REALTIME is 0)
		0x75, 0x0d, // jne to ret
		0x48, 0xb9, // mov rcx, seconds
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(int64(by/time.Second)))
	return append(code,
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // ret
	), nil
}

// findClockGettime returns the address of the function in the process.
func (p Process) findClockGettime(memory *os.File) (uint64, error) {
	maps, err := os.ReadFile(p.file("maps"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(maps)) {
		var start, end uint64
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x ", &start, &end); err != nil {
			return 0, fmt.Errorf("read %q: %w", line, err)
		}
		image := make([]byte, end-start)
		if _, err := memory.ReadAt(image, int64(start)); err != nil {
			return 0, fmt.Errorf("read the vDSO: %w", err)
		}
		offset, err := symbol(image, "__vdso_clock_gettime")
		return start + offset, err
	}
	return 0, errors.New("the process has no vDSO")
}

func symbol(image []byte, name string) (uint64, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the symbols of the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == name {
			return s.Value, nil
		}
	}
	return 0, fmt.Errorf("the vDSO has no %s", name)
}

// pause stops the process with all its threads.
func (p Process) pause(ctx context.Context) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		running := 0
		err := p.eachThread(func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, "stat"))
			if err != nil {
				return err
			}
			s, err := parseStat(string(data))
			if err == nil && s.state != "T" {
				running++
			}
			return err
		})
		if err != nil || running == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop it: %d threads run: %w", running, ctx.Err())
		case <-tick.C:
		}
	}
}

// runsIn reports whether a thread of the stopped process has been stopped in a
// range of addresses.
func (p Process) runsIn(from, to uint64) (bool, error) {
	within := false
	err := p.eachThread(func(dir string) error {
		data, err := os.ReadFile(filepath.Join(dir, "syscall"))
		if err != nil {
			return err
		}
		fields := strings.Fields(string(data)) // the last one is the program counter
		if len(fields) < 2 {
			return fmt.Errorf("a thread is %q", data)
		}
		at, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		within = within || from <= at && at < to
		return err
	})
	return within, err
}

func (p Process) eachThread(do func(dir string) error) error {
	threads, err := os.ReadDir(p.file("task"))
	if err != nil {
		return err
	}
	for _, t := range threads {
		if err := do(filepath.Join(p.file("task"), t.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (p Process) file(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.PID), name)
}
