// SPDX-License-Identifier: Apache-2.0

//go:build browser

package docs

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/thirdparty"
)

// TestSite builds the site, and has headless Chromium judge it from a server that only has files:
// docs/site/browser.mjs prints a line for each check.
func TestSite(t *testing.T) {
	const version = "1.2.3"
	root := check.Value(thirdparty.Root())(t)
	dir, files := filepath.Join(root, "docs/site"), t.TempDir()
	build := exec.CommandContext(t.Context(), "npm", "run", "build", "--", "--outDir", filepath.Join(files, version))
	build.Dir, build.Env = dir, append(os.Environ(), "VERSION="+version)
	log, err := build.CombinedOutput()
	check.Must(t, err == nil, "build the site (`make test-browser` installs what it needs): %v\n%s", err, log)
	server := httptest.NewServer(http.FileServer(http.Dir(files)))
	defer server.Close()

	node := exec.CommandContext(t.Context(), "node", "browser.mjs", server.URL+"/"+version+"/", os.Getenv("FENCELINE_SCREENSHOTS"))
	node.Dir, node.Stderr = dir, os.Stderr
	out := check.Value(node.StdoutPipe())(t)
	check.OK(t, node.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var line struct{ Name, Fault string }
		check.OK(t, json.Unmarshal(lines.Bytes(), &line))
		t.Run(line.Name, func(t *testing.T) { check.That(t, line.Fault == "", "%s", line.Fault) })
	}
	check.Is(t, node.Wait(), nil, "the browser test did not end well:")
}
