// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Writes are the writes of an agent to the API server. Most is the largest number under way at the same
// time since the last change of the delay.
type Writes struct {
	Leases, Others map[string]int // by method
	Underway, Most int
}

// slowWrites delays writes. A write whose caller has given up still reaches the server after the delay,
// as one that etcd has queued. Safe for concurrent use.
type slowWrites struct {
	mu     sync.Mutex
	by     time.Duration
	writes Writes
}

// SlowAPI delays each write of the agent from now on. 0 is the recovery of the API server.
func (n *Node) SlowAPI(by time.Duration) {
	s := &n.api.slow
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by, s.writes.Most = by, s.writes.Underway
}

// Writes returns the writes of the agent so far.
func (n *Node) Writes() Writes {
	s := &n.api.slow
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.writes
	w.Leases, w.Others = maps.Clone(w.Leases), maps.Clone(w.Others)
	return w
}

// hold returns a call once the API server may get it, and a function to call at its end.
func (s *slowWrites) hold(r *http.Request) (_ *http.Request, done func(), err error) {
	if r.Method == http.MethodGet {
		return r, func() {}, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	of, by := &s.writes.Others, s.by
	if strings.HasPrefix(r.URL.Path, leasesPath) {
		of = &s.writes.Leases
	}
	if *of == nil {
		*of = map[string]int{}
	}
	(*of)[r.Method]++
	s.writes.Underway++
	s.writes.Most = max(s.writes.Most, s.writes.Underway)
	s.mu.Unlock()
	time.Sleep(by)
	// With a cancel of its own. Otherwise the proxy would end the call with its connection.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.writes.Underway--
	}, nil
}
