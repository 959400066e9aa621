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
func (j *Journal) Ensure() (restored int, err error) {
	j.ensuring.Lock()
	defer j.ensuring.Unlock()
	if err = j.restore(); err == nil {
		err = j.probe()
	}
	restored, j.restored = j.restored, 0
	if err != nil {
		return restored, fmt.Errorf("keep the journal in %s: %w", j.dir, err)
	}
	return restored, nil
}

// putAgain writes an entry after it has made the directory again.
func (j *Journal) putAgain(path string, e *Entry) error {
	j.ensuring.Lock()
	defer j.ensuring.Unlock()
	if err := j.restore(); err != nil {
		return err
	}
	return j.put(path, e)
}

// restore makes directory, lock and files again. The caller holds ensuring.
func (j *Journal) restore() error {
	if info, err := os.Stat(j.dir); err == nil && info.Sys().(*syscall.Stat_t).Nlink == 0 {
		return ErrDirectoryRemoved
	}
	entries := filepath.Join(j.dir, entriesDir)
	if err := os.MkdirAll(entries, 0o700); err != nil {
		return err
	}
	if err := j.lockAgain(); err != nil {
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
	for _, e := range j.All() {
		path, err := j.path(e.Attachment())
		if err != nil || present[filepath.Base(path)] {
			continue
		}
		errs = append(errs, j.count(j.restoreEntry(e.Attachment(), path)))
	}
	errs = append(errs, j.count(j.Identity.restore()), j.count(j.Rotations.restore()), j.count(j.Pairs.restore()))
	return errors.Join(errs...)
}

// count counts a file that was written again.
func (j *Journal) count(restored bool, err error) error {
	if restored {
		j.restored++
	}
	return err
}

// lockAgain locks the directory again if the lock file is another one. The lock of a removed file
// keeps no other agent away.
func (j *Journal) lockAgain() error {
	path := filepath.Join(j.dir, lockFile)
	is, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	own, ownErr := j.lock.Stat()
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
	old := j.lock
	j.lock = lock
	return old.Close()
}

// restoreEntry writes an entry of this process to its file, if the file is missing.
func (j *Journal) restoreEntry(a agentapi.Attachment, path string) (restored bool, err error) {
	w := j.writer(path)
	w.Lock()
	defer w.Unlock()
	e, ok := j.Get(a.ContainerID, a.Interface)
	if !ok || exists(path) {
		return false, nil
	}
	return true, replace(path, &e)
}

// probe writes a file and removes it.
func (j *Journal) probe() error {
	f, err := os.CreateTemp(filepath.Join(j.dir, entriesDir), tempPattern)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, probeSize))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
