// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fenceline/fenceline/test/check"
)

// Running pods need an agent: it goes on to the next thing that it needs.
func TestADirectoryThatTakesNoPluginEndsNoAgent(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "plugin")
	check.OK(t, os.WriteFile(plugin, []byte("#!"), 0o755))
	s := settings{node: "n1", namespace: "n", plugin: plugin, binDir: filepath.Join(t.TempDir(), "bin"), stateDir: filepath.Join(plugin, "state")}
	if err := run(t.Context(), s); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("the agent ends: %v", err)
	}
}
