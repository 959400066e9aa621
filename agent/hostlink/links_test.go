// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/test/check"
)

// Only a namespace that is seen to be absent is gone: an error of another kind says nothing about the
// pod, whose routing then stays.
func TestAPodIsGoneOnlyIfItsNamespaceIsAbsent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "left-by-an-unmount")
	check.OK(t, os.WriteFile(file, nil, 0o600))
	loop := file + "-loop"
	check.OK(t, os.Symlink(loop, loop))
	for path, gone := range map[string]bool{
		file + "-absent": true,
		file:             true,
		loop:             false, // ELOOP stands for all errors of the path itself
	} {
		_, err := openPod(&journal.Entry{NetNS: path})
		check.That(t, err != nil && errors.Is(err, ErrGone) == gone, "%s: gone is to be %v: %v", path, gone, err)
	}
}
