// SPDX-License-Identifier: Apache-2.0

package images

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fenceline/fenceline/test/must"
)

// Tree returns the regular files and the symbolic links below a directory of this machine, by their
// paths in an image whose root is that directory. It leaves out the paths in without, with all that is
// below them.
func Tree(root string, without ...string) (files map[string][]byte, links map[string]string, err error) {
	defer must.CatchIn(&err, "read the tree %s for an image", root)
	files, links = map[string][]byte{}, map[string]string{}
	return files, links, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		must.OK(err)
		inside := filepath.Join("/", must.Value(filepath.Rel(root, path)))
		switch {
		case slices.Contains(without, inside) && entry.IsDir():
			return filepath.SkipDir
		case slices.Contains(without, inside):
		case entry.Type().IsRegular():
			files[inside] = must.Value(os.ReadFile(path))
		case entry.Type()&fs.ModeSymlink != 0:
			links[inside] = must.Value(os.Readlink(path))
		}
		return nil
	})
}
