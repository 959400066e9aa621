// SPDX-License-Identifier: Apache-2.0

package images

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// No container engine runs in CI, so this compares the folders that the Dockerfile copies with those
// that the programs import.
func TestTheDockerfileCopiesWhatTheProgramsImport(t *testing.T) {
	root := check.Value(thirdparty.Root())(t)
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "./agent", "./cni", "./controller")
	list.Dir = root
	wanted := map[string]bool{}
	for pkg := range strings.Lines(string(check.Value(list.Output())(t))) {
		folder, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(pkg), "github.com/fenceline/fenceline/"), "/")
		wanted[folder] = true
	}
	copied := map[string]bool{}
	for line := range strings.Lines(string(check.Value(os.ReadFile(filepath.Join(root, "Dockerfile")))(t))) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "COPY" {
			copied[f[1]] = true
		}
	}
	if len(wanted) < 5 || !maps.Equal(copied, wanted) {
		t.Errorf("copied: %v; imported: %v", slices.Sorted(maps.Keys(copied)), slices.Sorted(maps.Keys(wanted)))
	}
}
