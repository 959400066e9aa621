// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/internal/loop"
)

const (
	// patience bounds one question. Without this bound, a dead connection blocks for much longer.
	patience = 5 * time.Second
	// period is the time between two questions while there is no outage. retry is the pause after a
	// question without an answer.
	period = time.Minute
	retry  = time.Second
)

// RevisionWatch ends a process whose caches hold writes that the store has lost: their watches may stay
// silent until the store has reached that revision again. The next process lists everything.
type RevisionWatch struct {
	// Reader reads past any cache.
	Reader client.Reader
	// Cached returns the greatest revision in the caches.
	Cached func(context.Context) (uint64, error)
	// Outages reports when the store may have been restored.
	Outages *Outages
	// Known handles the newest revision that this process knows, after each answer, also if the store
	// went back behind it. It may be nil.
	Known func(uint64)
	// Revision handles each answer of a store that did not go back. It may be nil.
	Live  func(uint64)
	Clock clock.Clock
	Log   logr.Logger
}

// NeedLeaderElection makes a manager run the Watch also while it does not lead.
func (*RevisionWatch) NeedLeaderElection() bool { return false }

// Start asks the store after every outage, and periodically, until ctx ends. It returns a
// *WentBackError if the store went back.
func (w *RevisionWatch) Start(ctx context.Context) error {
	var known uint64
	for ctx.Err() == nil {
		wait := period
		live, cached, err := w.ask(ctx)
		if err == nil && w.Known != nil {
			w.Known(max(known, cached, live))
		}
		switch {
		case err != nil:
			w.Log.V(1).Info("the revision of the store could not be read; trying again", "why", err.Error())
			wait = retry
		case live < max(known, cached):
			return &WentBackError{Known: max(known, cached), Live: live}
		default:
			known = live
			if w.Live != nil {
				w.Live(live)
			}
		}
		loop.For(ctx, w.Clock, wait, w.Outages.over)
	}
	return nil
}

// ask reads the caches first: their objects may be newer than the answer afterwards.
func (w *RevisionWatch) ask(ctx context.Context) (live, cached uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if cached, err = w.Cached(ctx); err != nil {
		return 0, 0, err
	}
	live, err = Revision(ctx, w.Reader)
	return live, cached, err
}

// Outages reports when an API server answers again after an outage. A store can go back only during
// an outage, since the server is stopped for a restore.
type Outages struct {
	failed atomic.Bool
	over   loop.Wake
}

// NewOutages returns Outages for the requests of one process.
func NewOutages() *Outages { return &Outages{over: loop.NewWake()} }

// Transport observes requests and answers. Pass it to the Wrap of a rest.Config.
func (o *Outages) Transport(next http.RoundTripper) http.RoundTripper {
	return promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		switch {
		case err != nil && r.Context().Err() != nil:
			// The caller has cancelled the request.
		case err != nil || response.StatusCode >= http.StatusInternalServerError:
			o.failed.Store(true)
		case o.failed.Swap(false):
			o.over.Up()
		}
		return response, err
	})
}
