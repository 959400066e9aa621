package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

// dropExecutable takes the pages of this process's executable out of its memory;
// what is needed again comes back from the page cache. A mapping in which a page
// was written to, by a relocation or a probe of somebody's, stays as it is: that
// page would come back without it.
func dropExecutable() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the executable: %w", err)
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read the mappings: %w", err)
	}
	defer maps.Close()
	unwritten, err := unwrittenMappings(maps, exe)
	if err != nil {
		return fmt.Errorf("read the mappings: %w", err)
	}
	var errs []error
	for _, m := range unwritten {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED); errno != 0 {
			errs = append(errs, fmt.Errorf("drop the mapping %x-%x: %w", m.begin, m.end, errno))
		}
	}
	return errors.Join(errs...)
}

// mapping is a range of addresses; end is the first one behind it.
type mapping struct{ begin, end uintptr }

// unwrittenMappings reads which read-only mappings of a file have no page of
// their own, from text as in /proc/PID/smaps (proc_pid_smaps(5)).
func unwrittenMappings(smaps io.Reader, file string) (found []mapping, err error) {
	var m mapping
	ofFile := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0:
		case !strings.HasSuffix(fields[0], ":"): // address perms offset dev inode pathname
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.begin, &m.end); err != nil {
				return nil, fmt.Errorf("mapping %s: %w", fields[0], err)
			}
			ofFile = len(fields) == 6 && fields[5] == file && (fields[1] == "r-xp" || fields[1] == "r--p")
		case fields[0] == "Anonymous:" && ofFile && len(fields) == 3 && fields[1] == "0":
			found = append(found, m)
		}
	}
	return found, lines.Err()
}
