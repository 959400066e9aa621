// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
)

// lines are the pipes behind a process's file descriptors from 3 upwards.
type lines struct {
	ours, theirs []*os.File
	to           []io.Writer
}

// extraLines gives the command one file descriptor for each writer.
func extraLines(cmd *exec.Cmd, to ...io.Writer) (*lines, error) {
	l := &lines{to: to}
	for range to {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		l.ours, l.theirs = append(l.ours, r), append(l.theirs, w)
	}
	cmd.ExtraFiles = l.theirs
	return l, nil
}

// run runs the command until it has ended and everything that it wrote is where it belongs.
func (l *lines) run(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return errors.Join(err, l.close())
	}
	for _, f := range l.theirs {
		f.Close()
	}
	errs := make([]error, len(l.to))
	var copies sync.WaitGroup
	for i, w := range l.to {
		copies.Go(func() { _, errs[i] = io.Copy(w, l.ours[i]) })
	}
	copies.Wait()
	for _, f := range l.ours {
		f.Close()
	}
	return errors.Join(append(errs, cmd.Wait())...)
}

func (l *lines) close() error {
	var errs []error
	for _, f := range append(l.ours, l.theirs...) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// tail keeps the end of what is written to it.
type tail struct {
	max  int
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-t.max):]
	return len(p), nil
}
