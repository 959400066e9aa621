// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fenceline/fenceline/internal/wholefile"
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
	if err := wholefile.Store(path, tempPrefix+"*", content, mode); err != nil {
		return false, fmt.Errorf("write %s: %w", path, withoutPath(err))
	}
	return true, nil
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
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it was removed just now
	}
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
