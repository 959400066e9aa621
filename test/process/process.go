// SPDX-License-Identifier: Apache-2.0

// Package process starts programs that outlive their caller, and ends exactly these programs again.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/test/await"
	"github.com/fenceline/fenceline/test/must"
)

// Process identifies one process by PID and start time: the kernel may give a PID alone to another
// process later.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Started is the start time in clock ticks since boot.
	Started uint64 `json:"started"`
}

// Start starts cmd in a new session and appends its output to log. The process outlives the caller.
func Start(name string, cmd *exec.Cmd, log string) (p Process, err error) {
	defer must.CatchIn(&err, "start %s", name)
	must.OK(os.MkdirAll(filepath.Dir(log), 0o755))
	out := must.Value(os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	defer out.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	must.OK(cmd.Start())
	if p, err = Find(name, cmd.Process.Pid); err != nil {
		return Process{}, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	// While the caller lives, it reaps the process.
	go func() { _ = cmd.Wait() }()
	return p, nil
}

// Find returns the process that has the PID now.
func Find(name string, pid int) (Process, error) {
	stat, err := readStat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("look at process %d (%s): %w", pid, name, err)
	}
	return Process{Name: name, PID: pid, Started: stat.started}, nil
}

// Alive reports whether this process still runs. It ignores another process with the same PID.
func (p Process) Alive() bool {
	stat, err := readStat(p.PID)
	return err == nil && stat.started == p.Started && !stat.ended()
}

// CPU returns the CPU time of this process, in steps of 10 ms.
func (p Process) CPU() (time.Duration, error) {
	stat, err := readStat(p.PID)
	if err != nil {
		return 0, fmt.Errorf("CPU time of %s (%d): %w", p.Name, p.PID, err)
	}
	if stat.started != p.Started {
		return 0, fmt.Errorf("CPU time of %s (%d): the process has ended", p.Name, p.PID)
	}
	return stat.cpu, nil
}

// Memory returns the resident memory of this process in bytes, and the most that it was so far.
func (p Process) Memory() (now, peak uint64, err error) {
	defer must.CatchIn(&err, "memory of %s (%d)", p.Name, p.PID)
	for line := range strings.Lines(string(must.Value(os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "status"))))) {
		switch fields := strings.Fields(line); fields[0] {
		case "VmRSS:":
			now = must.Value(strconv.ParseUint(fields[1], 10, 64)) << 10
		case "VmHWM:":
			peak = must.Value(strconv.ParseUint(fields[1], 10, 64)) << 10
		}
	}
	must.That(now > 0, "the process has ended")
	return now, peak, nil
}

// Signal sends the signal to this process. It is no error if the process has ended.
func (p Process) Signal(sig syscall.Signal) error {
	if !p.Alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s (%d): %w", p.Name, p.PID, err)
	}
	return nil
}

// Stop asks the process to end, kills it after grace, and returns when it is gone.
func (p Process) Stop(ctx context.Context, grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if p.waitGone(ctx, grace) == nil {
		return nil
	}
	return p.Kill(ctx)
}

// Kill kills the process and returns when it is gone.
func (p Process) Kill(ctx context.Context) error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	return p.waitGone(ctx, 20*time.Second)
}

func (p Process) waitGone(ctx context.Context, limit time.Duration) error {
	return await.Until(ctx, limit, "the end of "+p.Name, func(context.Context) error {
		if p.Alive() {
			return fmt.Errorf("process %d lives", p.PID)
		}
		return nil
	})
}

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
