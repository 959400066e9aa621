// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/fenceline/fenceline/internal/loop"
)

// kept is a file that the agent keeps on the node as it wrote it. One goroutine uses it at a time.
type kept struct {
	what subject
	path string

	// seen is the file as it was before its content was last found to be right.
	seen identity
	// installed is set once the wanted content was installed.
	installed bool
	content   []byte

	// first is the configuration that was last reported to come before this one.
	first string

	errors loop.Backoff
	// told is the time of the last event about a file that was put back, and untold counts the
	// files that were put back since without an event.
	told   time.Time
	untold int
}

// identity changes with every write to a file, and with every other file of the same name.
type identity struct {
	inode        uint64
	size         int64
	mode         uint32
	sec, nanosec int64
}

// identify returns the identity of a file, or the zero identity.
func identify(path string) identity {
	var stat syscall.Stat_t
	if err := syscall.Lstat(path, &stat); err != nil {
		return identity{}
	}
	return identity{stat.Ino, stat.Size, stat.Mode, stat.Ctim.Sec, stat.Ctim.Nsec}
}

// wants sets the wanted content, and reports whether it differs from before. The next installation
// then does not count as a restoration.
func (k *kept) wants(content []byte) (changed bool) {
	if k.content != nil && bytes.Equal(k.content, content) {
		return false
	}
	k.content, k.seen, k.installed = content, identity{}, false
	return true
}

// keep installs the file, unless it is the file that was seen last.
func (k *kept) keep(now time.Time, tell *teller, install func() (bool, error)) error {
	before := identify(k.path)
	if k.seen != (identity{}) && before == k.seen {
		return nil
	}
	changed, err := install()
	if err != nil {
		k.seen = identity{}
		tell.failed(k, err)
		return err
	}
	k.errors.Reset()
	switch {
	case !changed:
		k.seen = before
	case k.installed:
		tell.restored(k, now)
	}
	k.installed = true
	return nil
}

// withoutPath removes the path from an error of a file operation. The names of temporary files are
// random, and the same problem must have the same text each time.
func withoutPath(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return of.Err
	}
	if of, ok := errors.AsType[*os.LinkError](err); ok {
		return of.Err
	}
	return err
}
