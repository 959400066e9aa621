// SPDX-License-Identifier: Apache-2.0

// Package process starts programs that outlive their caller, and ends exactly these programs again.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
