// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Tree returns the regular files and the symbolic links below a directory of this machine, by their
// paths in an image whose root is that directory. It leaves out the paths in without, with all that is
// below them.
func Tree(root string, without ...string) (files map[string][]byte, links map[string]string, err error) {
	files, links = map[string][]byte{}, map[string]string{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		inside := filepath.Join("/", rel)
		switch {
		case slices.Contains(without, inside) && entry.IsDir():
			return filepath.SkipDir
		case slices.Contains(without, inside):
			return nil
		case entry.Type().IsRegular():
			files[inside], err = os.ReadFile(path)
		case entry.Type()&fs.ModeSymlink != 0:
			links[inside], err = os.Readlink(path)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the tree %s for an image: %w", root, err)
	}
	return files, links, nil
}
