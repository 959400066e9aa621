//go:build bench

package main

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/apiserver"
)

// takenSpan notes when the controller wrote its first and its last lease.
type takenSpan struct {
	mu          sync.Mutex
	first, last time.Time
	n           int
	// requests of the controller by method, watches among them.
	requests map[string]int
}

func (s *takenSpan) transport(next http.RoundTripper) http.RoundTripper {
	return spanTripper{s, next}
}

type spanTripper struct {
	span *takenSpan
	next http.RoundTripper
}

func (s spanTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	s.span.sent(request.Method)
	asked := time.Now()
	response, err := s.next.RoundTrip(request)
	if err == nil && request.Method == http.MethodPut && response.StatusCode == http.StatusOK && strings.Contains(request.URL.Path, "/ipleases/") {
		s.span.note(asked, time.Now())
	}
	return response, err
}

func (s *takenSpan) note(asked, answered time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		s.first = asked
	}
	s.n++
	s.last = answered
}

func (s *takenSpan) sent(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[string]int{}
	}
	s.requests[method]++
}

func (s *takenSpan) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *takenSpan) rate() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.n) / s.last.Sub(s.first).Seconds()
}

// quarantinedLeases counts them at the API server.
func (w world) quarantinedLeases() int {
	w.Helper()
	var leases v1alpha1.IPLeaseList
	if err := w.client.List(w.ctx, &leases, client.MatchingFields{"spec.state": string(v1alpha1.StateQuarantined)}); err != nil {
		w.Fatal(err)
	}
	return len(leases.Items)
}

// cpu is the CPU time that the API server has used.
func (w world) cpu(server *apiserver.Server) time.Duration {
	w.Helper()
	used, err := server.CPU()
	if err != nil {
		w.Fatal(err)
	}
	return used
}

// load is how many processes of this machine want a CPU, of the last minute:
// figures of a machine with more than it has CPUs say little.
func load(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s on %d CPUs", strings.Fields(string(text))[0], runtime.NumCPU())
}
