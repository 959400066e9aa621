// SPDX-License-Identifier: Apache-2.0

//go:build browser

package page

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// TestPage has headless Chromium judge the page: web/browser.mjs prints a line for each check.
func TestPage(t *testing.T) {
	all, address := newCrowd(), freeAddress(t)
	var page *Server
	run := func() (stop func()) {
		page = serverOf(all)
		page.Assets = check.Value(Assets())(t)
		end := start(t, page, address)
		for _, l := range all.leases {
			page.feed.Present(l)
		}
		return end
	}
	stop := run()
	defer func() { stop() }()
	deeds := http.NewServeMux()
	deeds.HandleFunc("POST /reclaim/{name}", func(_ http.ResponseWriter, r *http.Request) {
		all.mu.Lock()
		was := all.leases[r.PathValue("name")]
		is := taken(was, v1alpha1.ReasonPodTerminating)
		all.leases[is.Name] = is
		all.mu.Unlock()
		page.feed.Lease(was, is, time.Now())
	})
	deeds.HandleFunc("POST /churn", func(http.ResponseWriter, *http.Request) { all.churn(page.feed) })
	deeds.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { stop() })
	deeds.HandleFunc("POST /start", func(http.ResponseWriter, *http.Request) { stop = run() })
	control := httptest.NewServer(deeds)
	defer control.Close()

	// The load of other programs is not the page's.
	node := exec.CommandContext(t.Context(), "nice", "-n", "-10", "node", "browser.mjs", "http://"+address, control.URL, os.Getenv("FENCELINE_SCREENSHOTS"))
	node.Dir, node.Stderr = "web", os.Stderr
	out := check.Value(node.StdoutPipe())(t)
	check.OK(t, node.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var line struct{ Name, Fault, Note string }
		check.OK(t, json.Unmarshal(lines.Bytes(), &line))
		t.Run(line.Name, func(t *testing.T) {
			t.Log(line.Note)
			if line.Fault != "" {
				t.Error(line.Fault)
			}
		})
	}
	check.Is(t, node.Wait(), nil, "the browser test did not end well (run `make test-browser`, which installs what it needs):")
}
