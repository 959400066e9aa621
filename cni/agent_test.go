// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
)

// answers are what the agent of these tests says. It is a fake, because the
// plugin's part alone is under test here: what it asks, and what it makes of
// each answer. The kernel tests run it against the agent's own server.
type answers struct {
	add *agentapi.AddResponse
	err *agentapi.Error
}

// fakeAgent records the last request for each path.
type fakeAgent struct {
	mu       sync.Mutex
	requests map[string][]byte
}

func listen(t testing.TB, n node, a answers) *fakeAgent {
	t.Helper()
	agent, stop := serve(t, n, a)
	t.Cleanup(stop)
	return agent
}

// listenUntil listens until stop is called.
func listenUntil(t testing.TB, n node, a answers) (stop func()) {
	t.Helper()
	_, stop = serve(t, n, a)
	return stop
}

func serve(t testing.TB, n node, a answers) (agent *fakeAgent, stop func()) {
	t.Helper()
	agent = &fakeAgent{requests: map[string][]byte{}}
	l, err := net.Listen("unix", n.socket())
	check.OK(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		agent.mu.Lock()
		agent.requests[r.URL.Path] = text
		agent.mu.Unlock()
		switch {
		case a.err != nil:
			w.WriteHeader(a.err.HTTPStatus())
			_ = json.NewEncoder(w).Encode(a.err)
		case r.URL.Path == agentapi.PathAdd:
			_ = json.NewEncoder(w).Encode(a.add)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})}
	go func() { _ = server.Serve(l) }()
	return agent, func() { server.Close() }
}

func (a *fakeAgent) request(path string) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[path]
}

func TestACallEndsWhenNobodyReadsItsResult(t *testing.T) {
	r, w, err := os.Pipe()
	check.OK(t, err)
	defer w.Close()
	ctx := whileRead(t.Context(), w)
	// What has been written and not been read yet is no reason.
	check.Value(w.WriteString("x"))(t)
	select {
	case <-ctx.Done():
		t.Fatal("the call ended while its reader was there")
	case <-time.After(50 * time.Millisecond): // that nothing happens has no event to wait for
	}
	r.Close()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("a minute after its reader left the call goes on")
	}
	check.Is(t, context.Cause(ctx), errUnread, "it ended by")
}

func TestACallWhoseResultGoesIntoAFileGoesOn(t *testing.T) {
	f := check.Value(os.CreateTemp(t.TempDir(), "result"))(t)
	defer f.Close()
	select {
	case <-whileRead(t.Context(), f).Done():
		t.Fatal("the call ended")
	case <-time.After(50 * time.Millisecond): // as above
	}
}
