// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/cni/spool"
	"github.com/fenceline/fenceline/internal/diagnosis"
)

// Options of a Server. Only the timeouts and Clock have defaults.
type Options struct {
	Backend Backend
	// Socket is the path to listen on.
	Socket string
	// Spool is the directory in which plugins leave DEL calls.
	Spool spool.Dir
	// CallTimeout ends a call; by default agentapi.CallTimeout. An ADD may last longer by WaitTimeout,
	// by default agentapi.WaitTimeout.
	CallTimeout, WaitTimeout time.Duration
	// Metrics gets the histogram of durations.
	Metrics prometheus.Registerer
	Log     logr.Logger
	// Clock drives the looks at the spool and measures durations; by default the real one.
	Clock clock.WithTicker

	// watch replaces watchDir in tests of nodes that cannot watch a directory.
	watch func(dir string) (*fsnotify.Watcher, error)
}

// Server serves the plugin API. Make it with New and run it once.
type Server struct {
	Options
	durations *prometheus.HistogramVec
	lanes     *lanes
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	o.CallTimeout = cmp.Or(o.CallTimeout, agentapi.CallTimeout)
	o.WaitTimeout = cmp.Or(o.WaitTimeout, agentapi.WaitTimeout)
	o.Clock = cmp.Or[clock.WithTicker](o.Clock, clock.RealClock{})
	if o.watch == nil {
		o.watch = watchDir
	}
	s := &Server{Options: o, durations: newDurations(), lanes: newLanes()}
	if err := o.Metrics.Register(s.durations); err != nil {
		return nil, fmt.Errorf("register the CNI metrics: %w", err)
	}
	return s, nil
}

// Start serves until ctx ends. Then it accepts no more calls, waits for the running ones, and
// returns. It cancels a call that runs for more than CallTimeout after the end of ctx. Start is a
// controller-runtime Runnable: start it when the caches are synced.
func (s *Server) Start(ctx context.Context) error {
	l, err := listen(s.Socket)
	if err != nil {
		return fmt.Errorf("serve the CNI plugin: %w", err)
	}
	calls, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	h := &http.Server{
		Handler:     s.handler(),
		BaseContext: func(net.Listener) context.Context { return calls },
		// No ReadTimeout: it would end the context of calls that are still running.
		ReadHeaderTimeout: s.CallTimeout,
	}
	g, stopped := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the CNI plugin on %s: %w", s.Socket, err)
		}
		return nil
	})
	g.Go(func() error { return s.watchSpool(stopped) })
	g.Go(func() error {
		<-stopped.Done()
		grace, cancel := context.WithTimeout(calls, s.CallTimeout)
		defer cancel()
		if err := h.Shutdown(grace); err != nil {
			s.Log.Error(err, "calls of the CNI plugin still run after their deadline; cancelling them")
			cancelCalls()
			return h.Close()
		}
		return nil
	})
	return g.Wait()
}

// newDurations returns the histogram of the time that a call spends in the agent, including the
// wait for earlier calls of its attachment. An ADD from a Warm lease takes some 5 ms, an ADD with
// probes some 200 ms, and 110 s is the deadline of an ADD that waits for a full pool.
func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "fenceline_cni_duration_seconds",
		Help:    "Time that the agent spent on a call of the CNI plugin, by verb and result.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 120},
	}, []string{"verb", "result"})
}

// Backend carries out the calls of the plugin.
//
// The server makes one call at a time for an attachment. Calls for different attachments, GC and
// Status run concurrently. Package refusal has the CNI codes of the returned errors.
type Backend interface {
	// Add returns addresses for an interface, or guards the interface if the request is chained.
	// When ctx ends, Add undoes its work and returns an error.
	Add(ctx context.Context, r agentapi.AddRequest) (*agentapi.AddResponse, error)
	// Answered is called after the answer of an Add that returned addresses was written.
	Answered(agentapi.Attachment)
	// Del fences and frees the addresses of the attachment. It succeeds if there are none. It
	// returns nil once the call is carried out or journalled. Its ctx ends at the deadline, and goes
	// on when the plugin disconnects.
	Del(ctx context.Context, r agentapi.DelRequest) error
	// Check returns an error if the attachment does not hold its addresses or is not guarded.
	Check(ctx context.Context, r agentapi.CheckRequest) error
	// GC fences and frees each attachment of r.Network that is not in r.Valid.
	GC(ctx context.Context, r agentapi.GCRequest) error
	// Status returns an error if Add would fail for every pod.
	Status(ctx context.Context) error
	// Diagnose tells a person about the node.
	Diagnose(ctx context.Context, r diagnosis.Request) (*diagnosis.Report, error)
}
