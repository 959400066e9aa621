package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

const (
	entrySuffix = ".json"
	// tempPattern is of files that are being written.
	tempPattern   = ".write-*"
	corruptSuffix = ".corrupt"
)

// CorruptError names a file that could not be read. It was set aside under
// the name in Kept, for people to look at.
type CorruptError struct {
	File, Kept string
	Err        error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal file %s is corrupt, kept as %s: %v", e.File, e.Kept, e.Err)
}

// Unwrap returns what is wrong with the file.
func (e *CorruptError) Unwrap() error { return e.Err }

// sweep drops the files of a directory whose write did not return, so that
// nobody relies on them.
func sweep(dir string) error {
	unfinished, err := filepath.Glob(filepath.Join(dir, tempPattern))
	if err != nil {
		return err
	}
	for _, path := range unfinished {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// readEntries reads the entries and sets corrupt ones aside.
func (j *Journal) readEntries() error {
	dir := filepath.Join(j.dir, entriesDir)
	if err := errors.Join(sweep(dir), j.adopt(dir)); err != nil {
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
		cut, err := loadNewest(path, &e)
		if err == nil {
			err = named(f.Name(), e)
		}
		if err != nil {
			if err := j.setAside(path, err); err != nil {
				return err
			}
			continue
		}
		k := key{e.ContainerID, e.Interface}
		if cut {
			// Nothing may be added behind half a value: the next one begins the file
			// anew. Not now, since the disk may still be full that cut it.
			j.extended[k] = maxExtended
		}
		j.remember(k, &e)
	}
	return nil
}

// named checks that a file holds the entry that its name says.
func named(file string, e Entry) error {
	if want := e.ContainerID + "@" + e.Interface + entrySuffix; file != want {
		return fmt.Errorf("it holds %s of container %s", e.Interface, e.ContainerID)
	}
	return nil
}

// readRotations reads where the rotations stood. Without the file they begin anew.
func (j *Journal) readRotations() error {
	if err := sweep(j.dir); err != nil {
		return err
	}
	path := filepath.Join(j.dir, rotationsFile)
	var last map[string]netip.Addr
	err := load(path, &last)
	switch {
	case err == nil:
		j.rotations = last
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return j.setAside(path, err)
}

// setAside renames a corrupt file to a name that is not read. An error of the
// file system is no corruption and is returned as it is.
func (j *Journal) setAside(path string, cause error) error {
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
	j.corrupt = append(j.corrupt, &CorruptError{path, kept, cause})
	return syncDir(filepath.Dir(path))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
