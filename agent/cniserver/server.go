// SPDX-License-Identifier: Apache-2.0

package cniserver

import (
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
)

// Options of a Server. Only the timeouts, SpoolPeriod and Clock have defaults.
type Options struct {
	Backend Backend
	// Socket is the path to listen on.
	Socket string
	// Spool is the directory in which plugins leave DEL calls.
	Spool string
	// CallTimeout ends a call; by default agentapi.CallTimeout. An ADD may last longer by WaitTimeout,
	// by default agentapi.WaitTimeout.
	CallTimeout, WaitTimeout time.Duration
	// SpoolPeriod is the time between two tries of a spooled call; by default 30 s.
	SpoolPeriod time.Duration
	// Metrics gets the histogram of durations.
	Metrics prometheus.Registerer
	Log     logr.Logger
	// Clock drives SpoolPeriod and measures durations; by default the real one.
	Clock clock.WithTicker

	// watch replaces watchDir in tests of nodes that cannot watch a directory.
	watch func(dir string) (*fsnotify.Watcher, error)
}

// Server serves the plugin API. Make it with New and run it once.
type Server struct {
	backend     Backend
	path        string
	spool       spool.Dir
	callTimeout time.Duration
	waitTimeout time.Duration
	spoolPeriod time.Duration
	durations   *prometheus.HistogramVec
	log         logr.Logger
	clock       clock.WithTicker
	lanes       *lanes
	watch       func(dir string) (*fsnotify.Watcher, error)
}

// New returns a server that does not listen yet.
func New(o Options) (*Server, error) {
	s := &Server{
		backend:     o.Backend,
		path:        o.Socket,
		spool:       spool.Dir(o.Spool),
		callTimeout: o.CallTimeout,
		waitTimeout: o.WaitTimeout,
		spoolPeriod: o.SpoolPeriod,
		durations:   newDurations(),
		log:         o.Log,
		clock:       o.Clock,
		lanes:       newLanes(),
		watch:       o.watch,
	}
	if s.callTimeout == 0 {
		s.callTimeout = agentapi.CallTimeout
	}
	if s.waitTimeout == 0 {
		s.waitTimeout = agentapi.WaitTimeout
	}
	if s.spoolPeriod == 0 {
		s.spoolPeriod = 30 * time.Second
	}
	if s.watch == nil {
		s.watch = watchDir
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	if err := o.Metrics.Register(s.durations); err != nil {
		return nil, fmt.Errorf("register the CNI metrics: %w", err)
	}
	return s, nil
}

// Start serves until ctx ends. Then it accepts no more calls, waits for the running ones, and
// returns. It cancels a call that runs for more than CallTimeout after the end of ctx. Start is a
// controller-runtime Runnable: start it when the caches are synced.
func (s *Server) Start(ctx context.Context) error {
	l, err := listen(s.path)
	if err != nil {
		return fmt.Errorf("serve the CNI plugin: %w", err)
	}
	calls, cancelCalls := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelCalls()
	h := &http.Server{
		Handler:     s.handler(),
		BaseContext: func(net.Listener) context.Context { return calls },
		// No ReadTimeout: it would end the context of calls that are still running.
		ReadHeaderTimeout: s.callTimeout,
	}
	g, stopped := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the CNI plugin on %s: %w", s.path, err)
		}
		return nil
	})
	g.Go(func() error { return s.watchSpool(stopped) })
	g.Go(func() error {
		<-stopped.Done()
		grace, cancel := context.WithTimeout(calls, s.callTimeout)
		defer cancel()
		if err := h.Shutdown(grace); err != nil {
			s.log.Error(err, "calls of the CNI plugin still run after their deadline; cancelling them")
			cancelCalls()
			return h.Close()
		}
		return nil
	})
	return g.Wait()
}
