package cniserver

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceline/fenceline/cni/agentapi"
)

// outcome is the metric label result: how a call ended.
type outcome string

const (
	outcomeOK outcome = "ok"
	// outcomeRetry: CNI code 11, 50 or 51; nobody is at fault and the runtime comes back.
	outcomeRetry outcome = "retry"
	// outcomeExhausted: pools fit and are full.
	outcomeExhausted outcome = "exhausted"
	// outcomeRefused: the configuration or the request has to change first.
	outcomeRefused outcome = "refused"
	// outcomeCancelled: the plugin left, or a DEL overtook.
	outcomeCancelled outcome = "cancelled"
	outcomeError     outcome = "error"
)

// newDurations makes the histogram of the time that a call spends in the agent, waiting
// for its turn included. A warm ADD takes about 1 ms, one with probes some
// 60 ms, and 20 s is the deadline.
func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fenceline_cni_duration_seconds",
		Help: "Time that the agent took for calls of the CNI plugin, by verb and result.",
		Buckets: []float64{
			.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20,
		},
	}, []string{"verb", "result"})
}

// outcomeOf classifies the end of a call whose connection has the context client.
func outcomeOf(client context.Context, err error) outcome {
	switch {
	case err == nil:
		return outcomeOK
	case client.Err() != nil, errors.Is(err, errSuperseded):
		return outcomeCancelled
	case errors.Is(err, context.DeadlineExceeded):
		return outcomeRetry
	}
	e, ok := errors.AsType[*agentapi.Error](err)
	if !ok {
		return outcomeError
	}
	switch e.Code {
	case agentapi.CodeTryAgainLater, agentapi.CodeNotAvailable:
		return outcomeRetry
	case agentapi.CodeExhausted:
		return outcomeExhausted
	case agentapi.CodeInternal, agentapi.CodeIOFailure:
		return outcomeError
	default:
		return outcomeRefused
	}
}
