// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fenceline/fenceline/test/check"
)

// A pod whose interface counts as gone loses its own link-local addresses at its guard: a node that is short
// of something must not say so of a pod that lives.
func TestANamespaceThatCannotBeOpenedIsNotGone(t *testing.T) {
	f := check.Value(NewFinder())(t)
	defer f.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "file") // what is left where a namespace was mounted
	check.OK(t, os.WriteFile(file, nil, 0o600))
	for _, row := range []struct {
		name, path string
		files      uint64 // how many the process may open, 0 for as many as before
		gone       bool
	}{
		{"there is no such path", filepath.Join(dir, "none"), 0, true},
		{"the path is no namespace", file, 0, true},
		{"the process may open no more files", "/proc/self/ns/net", 1, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.files != 0 {
				var before unix.Rlimit
				check.OK(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
				check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: row.files, Max: before.Max}))
				defer func() { check.OK(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }()
			}
			_, err := f.LinkLocal(row.path, "eth0")
			check.That(t, err != nil && IsGone(err) == row.gone, "got %v, gone should be %t", err, row.gone)
		})
	}
}
