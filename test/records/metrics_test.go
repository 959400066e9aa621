// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/controller/page"
	"github.com/fenceline/fenceline/internal/access"
	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/test/check"
)

// testMetrics serves metrics with the rights of the agents' and the controller's accounts.
func (e *env) testMetrics(t *testing.T) {
	e.helm(t, "upgrade", "fenceline", chart, "--namespace", namespace, "--set", "metrics.secure=true")
	allowed, other := e.reader(t, "scraper", "fenceline-metrics"), e.token(t, "other")
	for _, account := range []string{"fenceline-agent", "fenceline-controller"} {
		config := check.Value(e.server.ServiceAccount(t.Context(), namespace, account, nil))(t)
		url := serveMetrics(t, config)
		e.answers(t, account, url, allowed, other)
		got := get(t, strings.Replace(url, "https:", "http:", 1), allowed)
		check.That(t, got == http.StatusBadRequest, "%s answers %d to HTTP without TLS", account, got)
	}
}

// answers expects a server to answer only a token with the right.
func (e *env) answers(t *testing.T, server, url, allowed, other string) {
	t.Helper()
	for _, row := range []struct {
		name, token string
		want        int
	}{
		{"nobody", "", http.StatusUnauthorized},
		{"an unknown token", "abc", http.StatusUnauthorized},
		{"a token without the right", other, http.StatusForbidden},
		{"a token with the right", allowed, http.StatusOK},
	} {
		e.eventually(t, server+" answers "+row.name, func() error { // RBAC takes a moment
			if got := get(t, url, row.token); got != row.want {
				return errors.New(http.StatusText(got))
			}
			return nil
		})
	}
}

// reader returns the token of a new service account with a role of the chart.
func (e *env) reader(t *testing.T, account, role string) string {
	t.Helper()
	e.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: account}},
	})
	return e.token(t, account)
}

// token returns one of a new service account.
func (e *env) token(t *testing.T, account string) string {
	t.Helper()
	e.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: account}})
	config := check.Value(e.server.ServiceAccount(t.Context(), "default", account, nil))(t)
	return config.BearerToken
}

// serveMetrics serves metrics until the end of the test, and returns their URL.
func serveMetrics(t *testing.T, config *rest.Config) string {
	t.Helper()
	access := check.Value(rest.HTTPClientFor(config))(t)
	server := check.Value(metricsserver.NewServer(metricsendpoint.Endpoint{Address: "127.0.0.1:0", Secure: true}.Options(), config, access))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		check.Is(t, <-ended, nil, "got")
	})
	bound, ok := server.(interface{ GetBindAddr() string })
	check.Must(t, ok, "%T does not tell its address", server)
	check.Becomes(t, time.Minute, "the server to listen", func() bool { return bound.GetBindAddr() != "" })
	return "https://" + bound.GetBindAddr() + "/metrics"
}

// get returns the status of the answer to a client with a token.
func get(t *testing.T, url, token string) int {
	t.Helper()
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// Nobody has signed the certificate.
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer c.CloseIdleConnections()
	answer, err := c.Do(request)
	check.OK(t, err)
	check.OK(t, answer.Body.Close())
	return answer.StatusCode
}

// testPage serves the page with the rights of the controller's account.
func (e *env) testPage(t *testing.T) {
	e.helm(t, "upgrade", "fenceline", chart, "--namespace", namespace, "--set", "ui.enabled=true")
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
	served := &page.Server{
		Reader: records, Judge: check.Value(access.New(config, client, page.AllowedFor))(t), Log: logr.Discard(),
		Assets: check.Value[fs.FS](page.Assets())(t), Watch: page.Watching(records),
	}
	server := httptest.NewServer(served.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	check.OK(t, served.Follow(ctx))
	return server.URL
}
