// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/internal/event"
	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// period is the time between two looks. A result counts for freshFor, which is longer, so that an ADD
	// makes no look of its own while Run works: with 200 pods, a look takes 0.3 ms.
	period   = 2 * time.Second
	freshFor = 2 * period
	// tellInterval is the time after which a fault that lasts is reported again.
	tellInterval = 10 * time.Minute
)

// DirectoryOptions of a Directory. All are required.
type DirectoryOptions struct {
	event.Reporter
	// Dir is the directory for people.
	Dir string
	// Ensure makes the journal writable, and counts the files that it had to write again.
	Ensure func() (restored int, err error)
}

// Directory keeps the directory of the journal usable, and reports by events of the node when it
// is not: without it, no ADD can be served. Safe for concurrent use.
type Directory struct {
	DirectoryOptions
	mu     sync.Mutex
	looked time.Time
	err    error
	told   time.Time
}

// NewDirectory returns a Directory.
func NewDirectory(o DirectoryOptions) *Directory { return &Directory{DirectoryOptions: o} }

// Run looks at the directory until ctx ends. It returns an error if only a new start of the agent
// helps.
func (d *Directory) Run(ctx context.Context) error {
	return loop.Loop{Clock: d.Clock, Period: period}.Pace(ctx, func(context.Context) (time.Duration, error) {
		err := d.look(0)
		if errors.Is(err, ErrDirectoryRemoved) {
			return loop.End, err
		}
		return 0, nil
	})
}

// Check returns the reason why the journal cannot be written, or nil.
func (d *Directory) Check() error {
	return d.look(freshFor)
}

// look makes the journal writable, unless the last look is younger than fresh. It returns the reason if
// the journal cannot be written.
func (d *Directory) look(fresh time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.Clock.Now()
	if !d.looked.IsZero() && now.Sub(d.looked) < fresh {
		return d.err
	}
	restored, err := d.Ensure()
	was := d.err
	d.looked, d.err = now, nil
	if restored > 0 {
		d.Log.Info("files of the journal were removed by somebody, and are written again", "dir", d.Dir, "files", restored)
		d.NodeEventf(corev1.EventTypeWarning, "StateRestored", "Write",
			"somebody removed files from %s; the agent has written %d of them again, so no pod is affected; find out who empties this directory",
			d.Dir, restored)
	}
	switch {
	case err != nil:
		action, remedy := remedy(err)
		d.err = fmt.Errorf("the agent cannot write its state in %s: %w; %s", d.Dir, reason(err), remedy)
		if was == nil || was.Error() != d.err.Error() || now.Sub(d.told) >= tellInterval {
			d.told = now
			d.Log.Error(err, "no pod can start", "dir", d.Dir, "remedy", remedy)
			d.NodeEventf(corev1.EventTypeWarning, "StateUnusable", action, "no pod with an interface of Fenceline starts on this node: %s", d.err)
		}
	case was != nil:
		d.Log.Info("the state can be written again", "dir", d.Dir)
		d.NodeEventf(corev1.EventTypeNormal, "StateUsable", "Write", "the agent can write its state in %s again", d.Dir)
	}
	return d.err
}

// reason is the cause of an error without the random names of files: the same fault has the same text.
func reason(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// remedy says what an operator can do about an error. Events with another action are not counted as
// repetitions, so each fault has its own.
func remedy(err error) (action, text string) {
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case syscall.ENOSPC, syscall.EDQUOT:
		return "FreeSpace", "free space or inodes of its file system (df, df -i, quota)"
	case syscall.EROFS:
		return "MountReadWrite", "find out why its file system is read-only (dmesg), and mount it read-write"
	case syscall.EACCES, syscall.EPERM:
		return "Permit", "give the directory to root with mode 0700, without the attribute i (lsattr), and check what else forbids it (SELinux, AppArmor)"
	case syscall.EIO:
		return "Repair", "the disk or its file system is damaged (dmesg)"
	}
	return "Write", "the agent tries again"
}
