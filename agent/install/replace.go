package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// tempPrefix begins the names of unfinished files. Runtimes look for names
// that end in .conf, .conflist or .json; these do not.
const tempPrefix = ".fenceline-install-"

// replace makes dir/name hold the content with the mode, and reports whether it
// did not already. A process that runs the old file keeps it.
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
		return false, fmt.Errorf("make a file beside %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(content); err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Chmod(mode); err != nil {
		return false, fmt.Errorf("set the mode of %s: %w", path, err)
	}
	// Without it, a machine that loses power may come back with an empty file.
	if err := f.Sync(); err != nil {
		return false, fmt.Errorf("sync %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return false, fmt.Errorf("close %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return false, fmt.Errorf("put %s in its place: %w", path, err)
	}
	return true, syncDir(dir)
}

// holds reports whether the file is already as it should be.
func holds(path string, content []byte, mode fs.FileMode) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look at %s: %w", path, err)
	case info.IsDir():
		return false, fmt.Errorf("look at %s: it is a directory", path)
	case !info.Mode().IsRegular(), info.Mode().Perm() != mode, info.Size() != int64(len(content)):
		return false, nil
	}
	present, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return bytes.Equal(present, content), nil
}

// sweep removes what an agent left that was killed in the middle.
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
