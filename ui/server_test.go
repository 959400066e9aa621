// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/cache"
	"github.com/fenceline/fenceline/test/check"
)

// small is a server with the pool underlay and two leases.
func small(t *testing.T) *Server {
	t.Helper()
	scheme := check.Value(cache.Scheme())(t)
	other := leaseNamed("10.0.1.1", v1alpha1.StateWarm, "")
	other.Spec.Pool = "spare"
	return serverOf(fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1alpha1.IPLease{}, cache.LeasesByPool, func(o client.Object) []string { return []string{o.(*v1alpha1.IPLease).Spec.Pool} }).
		WithObjects(poolNamed("underlay", "10.0.0.0/24"), poolNamed("spare", "10.0.1.0/24"), other,
			leaseNamed("10.0.0.5", v1alpha1.StateBound, "web-0"), taken(leaseNamed("10.0.0.6", v1alpha1.StateBound, "web-1"), v1alpha1.ReasonPodGone)).
		Build())
}

func get(t *testing.T, url, token string) (int, http.Header, string) {
	t.Helper()
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	check.OK(t, err)
	defer answer.Body.Close()
	return answer.StatusCode, answer.Header, string(check.Value(io.ReadAll(answer.Body))(t))
}

func TestWhoGetsWhat(t *testing.T) {
	page := httptest.NewServer(small(t).Handler())
	defer page.Close()
	for _, row := range []struct {
		path, token string
		want        int
		text        string
	}{
		{"/", "", 200, "Fenceline"},
		{"/none.js", "", 404, ""},
		{"/api/pools", "", 401, "Unauthorized"},
		{"/api/pools", "stranger", 401, "Unauthorized"},
		{"/api/pools", "tenant", 403, "Forbidden"},
		{"/api/events", "stranger", 401, "Unauthorized"},
		{"/api/leases/10.0.0.5", "tenant", 403, "Forbidden"},
		{"/api/pools", "viewer", 200, `[{"name":"spare"`},
		{"/api/pools/underlay", "viewer", 200, `"grid":{"first":"10.0.0.0","size":256,"runs":"1-254f1-"}`},
		{"/api/pools/none", "viewer", 404, ""},
		{"/api/leases/10.0.0.5", "viewer", 200, "Bound to pod shop/web-0, interface eth0 on node n1 since 2026-01-01T00:00:00Z."},
		{"/api/leases/10.0.0.5", "viewer", 200, "The controller leaves the lease as it is: the pod is alive."},
		{"/api/leases/10.0.0.6", "viewer", 200, "It was taken from pod shop/web-1 on node n1."},
		{"/api/leases/10.0.0.7", "viewer", 404, ""},
		{"/api/none", "viewer", 404, ""},
	} {
		code, header, text := get(t, page.URL+row.path, row.token)
		if code != row.want || !strings.Contains(text, row.text) {
			t.Errorf("%s for %q: %d %s, want %d %s", row.path, row.token, code, text, row.want, row.text)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; ", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Access-Control-Allow-Origin": "",
		} {
			if got := header.Get(name); !strings.HasPrefix(got, want) || want == "" && got != "" || strings.Contains(got, "unsafe") {
				t.Errorf("%s: %s is %q", row.path, name, got)
			}
		}
		got := header.Get("Cache-Control")
		check.That(t, code != 200 || got == "no-store", "%s: Cache-Control is %q", row.path, got)
	}
}

func TestAPoolHasItsOwnLeasesOnly(t *testing.T) {
	page := httptest.NewServer(small(t).Handler())
	defer page.Close()
	_, _, text := get(t, page.URL+"/api/pools/underlay", "viewer")
	var got struct{ Leases []Lease }
	check.OK(t, json.Unmarshal([]byte(text), &got))
	if len(got.Leases) != 2 || got.Leases[0] != (Lease{Name: "10.0.0.5", Pool: "underlay", Address: "10.0.0.5", State: "B", Node: "n1", Namespace: "shop", Pod: "web-0"}) {
		t.Errorf("%+v", got.Leases)
	}
}

// start runs a server on an address until the test ends or stop is called.
func start(t *testing.T, s *Server, address string) (stop func()) {
	t.Helper()
	s.Address = address
	ctx, cancel := context.WithCancel(t.Context())
	watched, ended := make(chan struct{}), make(chan error, 1)
	s.Watch = func(context.Context, *Feed) error { close(watched); return nil }
	go func() { ended <- s.Start(ctx) }()
	check.Receive(t, time.Minute, "the server to watch", watched)
	return func() {
		cancel()
		check.OK(t, check.Receive(t, time.Minute, "the end of the server", ended))
	}
}

func TestAStreamHasEachChangeAndEndsWithTheServer(t *testing.T) {
	s, address := small(t), freeAddress(t)
	stop := start(t, s, address)
	request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/events", nil))(t)
	request.Header.Set("Authorization", "Bearer viewer")
	answer, err := http.DefaultClient.Do(request)
	check.OK(t, err)
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	read := func() string {
		lines.Scan()
		return lines.Text()
	}
	for _, want := range []string{"event: hello", "data: null", ""} {
		got := read()
		check.Must(t, got == want, "%q, want %q", got, want)
	}
	lease := leaseNamed("10.0.0.9", v1alpha1.StateBound, "web-9")
	s.feed.Lease(lease, taken(lease, v1alpha1.ReasonNodeUnreachable), time.Now())
	event, data := read(), read()
	check.That(t, event == "event: lease" && strings.Contains(data, `"state":"Q"`), "%s\n%s", event, data)
	read()
	if event, data := read(), read(); event != "event: happening" || !strings.Contains(data, `"kind":"reclaim"`) {
		t.Errorf("%s\n%s", event, data)
	}
	stop() // fails if it waits for the stream
	read()
	check.That(t, !lines.Scan(), "after the end: %s", lines.Text())
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l := check.Value((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	check.OK(t, l.Close())
	return l.Addr().String()
}

func TestOnlyALoopbackAddressIsServedByHTTP(t *testing.T) {
	_, port, err := net.SplitHostPort(freeAddress(t))
	check.OK(t, err)
	defer start(t, small(t), ":"+port)()
	code, _, text := get(t, "http://127.0.0.1:"+port+"/", "")
	check.That(t, code == http.StatusBadRequest, "HTTP: %d %s", code, text)
}

func TestACertificateThatIsMissingIsAnError(t *testing.T) {
	s := small(t)
	s.Address, s.CertDir = ":0", t.TempDir()
	check.Says(t, s.Start(t.Context()), "serve the page on :0: read the certificate in "+s.CertDir)
}
