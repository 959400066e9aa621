// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fenceline/fenceline/test/must"
)

// clockTick is the unit of times in /proc: USER_HZ, which is 100 wherever Go runs.
const clockTick = 10 * time.Millisecond

// stat holds fields of proc_pid_stat(5).
type stat struct {
	state   string
	parent  int
	threads int
	started uint64 // clock ticks since boot
	cpu     time.Duration
}

func readStat(pid int) (_ stat, err error) {
	defer must.CatchIn(&err, "read state of process %d", pid)
	return parseStat(string(must.Value(os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat")))))
}

// ended reports whether all threads have ended. The first thread of a killed process may be a zombie
// while the others still hold the files of the process, such as its listeners.
func (s stat) ended() bool { return (s.state == "Z" || s.state == "X") && s.threads <= 1 }

// parseStat reads fields 3, 4, 14, 15, 20 and 22. The name in field 2 may hold spaces and parentheses.
func parseStat(text string) (s stat, err error) {
	defer must.Catch(&err)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	must.That(len(fields) >= 20, "%d fields after the name", len(fields))
	s.state, s.parent, s.threads = fields[0], must.Value(strconv.Atoi(fields[1])), must.Value(strconv.Atoi(fields[17]))
	for _, field := range fields[11:13] { // in user mode, and in the kernel
		s.cpu += time.Duration(must.Value(strconv.ParseInt(field, 10, 64))) * clockTick
	}
	s.started = must.Value(strconv.ParseUint(fields[19], 10, 64))
	return s, nil
}

// Arguments returns the command line of a process; it is empty for a process that is ending.
func Arguments(pid int) ([]string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || len(data) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00"), nil
}

// Descendants returns the PIDs of the children of root, of their children, and so on.
func Descendants(root int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	var found []int
	for next := children[root]; len(next) > 0; next = next[1:] {
		found = append(found, next[0])
		next = append(next, children[next[0]]...)
	}
	return found, nil
}

// NetworkNamespaces returns the network namespaces that threads of the process
// are in, named as network_namespaces(7) and /proc do.
func (p Process) NetworkNamespaces() ([]string, error) {
	tasks := filepath.Join("/proc", strconv.Itoa(p.PID), "task")
	threads, err := os.ReadDir(tasks)
	var found []string
	for _, t := range threads {
		name, err := os.Readlink(filepath.Join(tasks, t.Name(), "ns", "net"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found, err
}
