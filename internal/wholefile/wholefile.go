// SPDX-License-Identifier: Apache-2.0

// Package wholefile replaces files by rename, so that every reader finds the whole old content or the
// whole new one.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces the content of a file. pattern names the temporary file beside it, as in
// os.CreateTemp. When this process ends at any step, the file holds the old content or the new one.
// After a loss of power it may hold either, or be cut short.
func Replace(path, pattern string, content []byte, mode fs.FileMode) error {
	return write(path, pattern, content, mode, func(*os.File) error { return nil })
}

// Store is Replace for content that must survive a loss of power: the file holds the old content or
// the new one, and the new one once Store has returned.
func Store(path, pattern string, content []byte, mode fs.FileMode) error {
	if err := write(path, pattern, content, mode, (*os.File).Sync); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

func write(path, pattern string, content []byte, mode fs.FileMode, settle func(*os.File) error) (err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), pattern)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	if _, err = temp.Write(content); err == nil {
		err = errors.Join(temp.Chmod(mode), settle(temp))
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// SyncDir makes renames and removals in a directory survive a loss of power.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
