// SPDX-License-Identifier: Apache-2.0

package wholefile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

func TestAFileIsReplacedWholeAndLeavesNoOther(t *testing.T) {
	for name, write := range map[string]func(path, pattern string, content []byte, mode fs.FileMode) error{"Replace": Replace, "Store": Store} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			check.OK(t, write(path, ".temp-*", []byte("old"), 0o600))
			reader := check.Value(os.Open(path))(t)
			defer reader.Close()
			check.OK(t, write(path, ".temp-*", []byte("newer"), 0o755))
			check.That(t, write(dir, ".temp-*", []byte("x"), 0o600) != nil, "a directory was replaced")
			was := make([]byte, 3)
			check.Value(reader.Read(was))(t)
			now := check.Value(os.ReadFile(path))(t)
			check.That(t, string(was) == "old" && string(now) == "newer", "the reader sees %q, the file holds %q", was, now)
			check.Equal(t, check.Value(os.Stat(path))(t).Mode().Perm(), 0o755, "mode")
			check.Equal(t, len(check.Value(os.ReadDir(dir))(t)), 1, "files:")
		})
	}
}
