// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// tempPrefix begins the names of unfinished files. Runtimes ignore them, since their
// names do not end in .conf, .conflist or .json.
const tempPrefix = ".fenceline-install-"

// replace writes the content to dir/name with the mode, and reports whether the file
// has changed. A process that runs the old file keeps it.
func replace(dir, name string, content []byte, mode fs.FileMode) (changed bool, err error) {
	path := filepath.Join(dir, name)
	same, err := holds(path, content, mode)
	if err != nil || same {
		return false, err
	}
	if err := sweep(dir); err != nil {
		return false, err
	}
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return false, fmt.Errorf("create a temporary file for %s: %w", path, withoutPath(err))
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(content); err != nil {
		return false, fmt.Errorf("write %s: %w", path, withoutPath(err))
	}
	if err := f.Chmod(mode); err != nil {
		return false, fmt.Errorf("set the mode of %s: %w", path, withoutPath(err))
	}
	// Without the sync, a loss of power may leave an empty file.
	if err := f.Sync(); err != nil {
		return false, fmt.Errorf("sync %s: %w", path, withoutPath(err))
	}
	if err := f.Close(); err != nil {
		return false, fmt.Errorf("close %s: %w", path, withoutPath(err))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return false, fmt.Errorf("rename the temporary file to %s: %w", path, withoutPath(err))
	}
	return true, syncDir(dir)
}

// holds reports whether the file already has the content and the mode.
func holds(path string, content []byte, mode fs.FileMode) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the attributes of %s: %w", path, err)
	case info.IsDir():
		return false, fmt.Errorf("replace %s: it is a directory", path)
	case !info.Mode().IsRegular(), info.Mode().Perm() != mode, info.Size() != int64(len(content)):
		return false, nil
	}
	present, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return bytes.Equal(present, content), nil
}

// sweep removes the unfinished files of an agent that was killed.
func sweep(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for unfinished files in %s: %w", dir, err)
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an unfinished file: %w", err)
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
