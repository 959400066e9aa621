// Package metrics counts what the agent does with addresses. Labels are
// bounded: pool, source, verdict and verb, never MAC or pod (R13).
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/agent/segment"
)

// Agent holds the agent's counters. Safe for concurrent use.
type Agent struct {
	conflicts     *prometheus.CounterVec
	verifications *prometheus.CounterVec
	apiErrors     *prometheus.CounterVec
}

// New registers the counters.
func New(r prometheus.Registerer) *Agent {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "fenceline", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	a := &Agent{
		conflicts:     counter("conflicts_total", "Second speakers for an address, by pool and by what met them.", "pool", "source"),
		verifications: counter("verifications_total", "Verifications of addresses taken by force, by verdict.", "verdict"),
		apiErrors:     counter("api_errors_total", "Calls to the API server that failed, by verb.", "verb"),
	}
	// A rate over a series that begins with its first event misses that event.
	for _, v := range []segment.Verdict{segment.Fenced, segment.Silent, segment.Answered, segment.Unknown} {
		a.verifications.WithLabelValues(string(v))
	}
	for _, verb := range []string{"create", "update", "delete", "get", "list"} {
		a.apiErrors.WithLabelValues(verb)
	}
	return a
}

// Conflict counts a second speaker.
func (a *Agent) Conflict(pool string, source segment.Source) {
	a.conflicts.WithLabelValues(pool, string(source)).Inc()
}

// Verification counts a verdict.
func (a *Agent) Verification(v segment.Verdict) { a.verifications.WithLabelValues(string(v)).Inc() }

// APIError counts a failed call.
func (a *Agent) APIError(verb string, _ error) { a.apiErrors.WithLabelValues(verb).Inc() }
