// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fenceline/fenceline/internal/wholefile"
)

const (
	entrySuffix = ".json"
	// tempPattern matches files that are being written.
	tempPattern   = ".write-*"
	corruptSuffix = ".corrupt"
)

// CorruptError describes a file that could not be read. Kept is its new name.
type CorruptError struct {
	File, Kept string
	Err        error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("read journal file %s: %v; the file was kept as %s: look at it, then remove it", e.File, e.Err, e.Kept)
}

// Unwrap returns the error of the read.
func (e *CorruptError) Unwrap() error { return e.Err }

// sweep removes temporary files, as far as it can. Their writes never returned.
func sweep(dir string) error {
	unfinished, err := filepath.Glob(filepath.Join(dir, tempPattern))
	if err != nil {
		return err
	}
	for _, path := range unfinished {
		_ = os.Remove(path) // on a read-only file system, they stay
	}
	return nil
}

// readEntries reads the entries and renames corrupt files.
func (t *Table) readEntries() error {
	dir := filepath.Join(t.dir, entriesDir)
	if err := sweep(dir); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), entrySuffix) {
			continue
		}
		path := filepath.Join(dir, f.Name())
		var e Entry
		err := load(path, &e)
		if err == nil && f.Name() != e.ContainerID+"@"+e.Interface+entrySuffix {
			err = fmt.Errorf("the file holds the entry of %s in container %s", e.Interface, e.ContainerID)
		}
		if err != nil {
			if err := t.setAside(path, err); err != nil {
				return err
			}
			continue
		}
		t.remember(&e)
	}
	return nil
}

// setAside renames a corrupt file to a name that is not read. It returns an error of the file
// system unchanged: the file may be intact.
func (t *Table) setAside(path string, cause error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(cause, &pathErr) {
		return cause
	}
	kept := path + corruptSuffix
	for n := 2; exists(kept); n++ {
		kept = fmt.Sprintf("%s%s-%d", path, corruptSuffix, n)
	}
	if err := os.Rename(path, kept); err != nil {
		return err
	}
	t.corrupt = append(t.corrupt, &CorruptError{path, kept, cause})
	return wholefile.SyncDir(filepath.Dir(path))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
