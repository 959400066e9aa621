// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fenceline/fenceline/internal/metricsendpoint"
	"github.com/fenceline/fenceline/test/check"
)

// testMetrics serves metrics with the rights of the agents' and the controller's accounts.
func (e *env) testMetrics(t *testing.T) {
	e.helm(t, "upgrade", "fenceline", chart(t), "--namespace", namespace, "--set", "metrics.secure=true")
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
