// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// ErrDirectoryRemoved means that the directory itself was removed after the start of the container.
// Only a new start of the container mounts the present directory.
var ErrDirectoryRemoved = errors.New("the directory was removed from the node, and the agent starts again to use the one that is there now")

// probeSize is a block of most file systems: a smaller file may fit into an inode of a full disk.
const probeSize = 4096

// Ensure makes sure that entries can be written, and that the directory holds those of this process. It
// returns how many files were written again since the last call, because somebody had removed them.
func (t *Table) Ensure() (restored int, err error) {
	t.ensuring.Lock()
	defer t.ensuring.Unlock()
	if err = t.restore(); err == nil {
		err = probe(filepath.Join(t.dir, entriesDir))
	}
	restored, t.restored = t.restored, 0
	if err != nil {
		return restored, fmt.Errorf("keep the journal in %s: %w", t.dir, err)
	}
	return restored, nil
}

// putAgain writes an entry after it has made the directory again.
func (t *Table) putAgain(path string, e *Entry) error {
	t.ensuring.Lock()
	defer t.ensuring.Unlock()
	if err := t.restore(); err != nil {
		return err
	}
	return t.put(path, e)
}

// restore makes directory, lock and files again. The caller holds ensuring.
func (t *Table) restore() error {
	if info, err := os.Stat(t.dir); err == nil && info.Sys().(*syscall.Stat_t).Nlink == 0 {
		return ErrDirectoryRemoved
	}
	entries := filepath.Join(t.dir, entriesDir)
	if err := os.MkdirAll(entries, 0o700); err != nil {
		return err
	}
	if err := t.lockAgain(); err != nil {
		return err
	}
	files, err := os.ReadDir(entries)
	if err != nil {
		return err
	}
	present := make(map[string]bool, len(files))
	for _, f := range files {
		present[f.Name()] = true
	}
	var errs []error
	count := func(restored bool, err error) {
		if restored {
			t.restored++
		}
		errs = append(errs, err)
	}
	for _, e := range t.All() {
		path, err := t.path(e.Attachment())
		if err != nil || present[filepath.Base(path)] {
			continue
		}
		count(t.restoreEntry(e.Attachment(), path))
	}
	count(t.Identity.restore())
	count(t.Rotations.restore())
	count(t.Pairs.restore())
	count(t.Services.restore())
	return errors.Join(errs...)
}

// lockAgain locks the directory again if the lock file is another one. The lock of a removed file
// keeps no other agent away.
func (t *Table) lockAgain() error {
	path := filepath.Join(t.dir, lockFile)
	is, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	own, ownErr := t.lock.Stat()
	if ownErr != nil {
		return ownErr
	}
	if err == nil && os.SameFile(is, own) {
		return nil
	}
	lock, err := acquire(path)
	if err != nil {
		return err
	}
	old := t.lock
	t.lock = lock
	return old.Close()
}

// restoreEntry writes an entry of this process to its file, if the file is missing.
func (t *Table) restoreEntry(a agentapi.Attachment, path string) (restored bool, err error) {
	defer t.Calls.wait(file(path))()
	e, ok := t.Get(a.ContainerID, a.Interface)
	if !ok || exists(path) {
		return false, nil
	}
	return true, replace(path, &e)
}

// probe writes a file to a directory and removes it.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, tempPattern)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeSize))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
