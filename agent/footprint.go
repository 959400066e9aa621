package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// gcPercent trades the garbage collector's time, which an agent has, for
// memory, which each node pays for.
const gcPercent = 50

// saveMemory makes the heap grow less between collections, unless GOGC says
// how much it may.
func saveMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// shed gives back once what only the start needed: garbage, and the pages of
// the executable that register kinds no agent ever meets. It has the form of a
// controller-runtime Runnable.
func (a *agent) shed(ctx context.Context) error {
	if !a.mgr.GetCache().WaitForCacheSync(ctx) {
		return nil
	}
	debug.FreeOSMemory()
	if err := dropExecutable(); err != nil {
		a.log.Info("the pages of the start stay in memory", "why", err.Error())
	}
	return nil
}

// dropExecutable takes the pages of this process's executable that cannot have
// been written to out of its memory. What is needed again comes back from the
// page cache.
func dropExecutable() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the executable: %w", err)
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("read the mappings: %w", err)
	}
	defer maps.Close()
	var errs []error
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// address perms offset dev inode pathname (proc_pid_maps(5))
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[5] != exe || fields[1] != "r-xp" && fields[1] != "r--p" {
			continue
		}
		var begin, end uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &begin, &end); err != nil {
			return fmt.Errorf("read the mapping %s: %w", fields[0], err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, begin, end-begin, unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("drop the mapping %s: %w", fields[0], errno))
		}
	}
	return errors.Join(append(errs, lines.Err())...)
}
