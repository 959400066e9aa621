// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"bufio"
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/internal/access"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/ui"
)

// testPage serves the page with the rights of the controller's account.
func (e *env) testPage(t *testing.T) {
	e.helm(t, "upgrade", "fenceline", chart(t), "--namespace", namespace, "--set", "ui.enabled=true")
	viewer, other := e.reader(t, "page-viewer", "fenceline-view"), e.token(t, "page-other")
	url := e.servePage(t)
	e.answers(t, "the page", url+"/api/pools", viewer, other)

	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/events", nil))(t)
	request.Header.Set("Authorization", "Bearer "+viewer)
	answer, err := http.DefaultClient.Do(request)
	check.OK(t, err)
	defer answer.Body.Close()
	const address = "10.77.0.5"
	lease, agent := bound("", address), e.as(t, agentUser, map[string][]string{nodeNameKey: {"n1"}})
	lines := bufio.NewScanner(answer.Body)
	for _, step := range []struct {
		event string
		write func(context.Context) error
	}{
		{"event: lease", func(ctx context.Context) error { return agent.Create(ctx, lease) }},
		{"event: lease-gone", func(ctx context.Context) error { return agent.Delete(ctx, lease) }},
	} {
		check.OK(t, step.write(t.Context()))
		event := ""
		for lines.Scan() && !strings.Contains(lines.Text(), address) {
			event = lines.Text()
		}
		check.That(t, event == step.event && strings.Contains(lines.Text(), `"state":"B"`), "%s (%v)\n%s, want %s", event, lines.Err(), lines.Text(), step.event)
	}
}

// servePage serves the page until the end of the test, and returns its URL.
func (e *env) servePage(t *testing.T) string {
	t.Helper()
	config := check.Value(e.server.ServiceAccount(t.Context(), namespace, "fenceline-controller", nil))(t)
	options := cache.Options()
	options.Scheme = check.Value(cache.Scheme())(t)
	config.ContentType = "application/json" // of podview.Pod
	records := check.Value(ctrlcache.New(config, options))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	check.OK(t, cache.AddIndexes(ctx, records))
	go func() { _ = records.Start(ctx) }()
	client := check.Value(rest.HTTPClientFor(config))(t)
	page := &ui.Server{
		Reader: records, Judge: check.Value(access.New(config, client, ui.AllowedFor))(t), Log: logr.Discard(),
		Assets: check.Value[fs.FS](ui.Assets())(t), Watch: ui.Watching(records),
	}
	server := httptest.NewServer(page.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	check.OK(t, page.Follow(ctx))
	return server.URL
}
