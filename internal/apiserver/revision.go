// SPDX-License-Identifier: Apache-2.0

// Package apiserver tells how far the answers of the API server can be trusted: its time, the revision of
// its store, and the age of a read. A store that was restored from a backup goes back, and gives out
// revisions a second time.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/loop"
)

// Revision returns the store's revision. The reader reads past any cache.
func Revision(ctx context.Context, reader client.Reader) (uint64, error) {
	pools := &v1alpha1.IPPoolList{}
	if err := reader.List(ctx, pools, client.Limit(1)); err != nil {
		return 0, fmt.Errorf("read the revision of the store: %w", err)
	}
	live, err := strconv.ParseUint(pools.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the revision of the store: resourceVersion %q: %w", pools.ResourceVersion, err)
	}
	return live, nil
}

// RevisionOf returns the revision of an object's last write, or 0 if the object has none.
func RevisionOf(o client.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// GreatestRevision fills the lists with the reader, and returns the greatest revision of their objects.
func GreatestRevision(ctx context.Context, reader client.Reader, lists ...client.ObjectList) (uint64, error) {
	var greatest uint64
	for _, list := range lists {
		if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("find the greatest revision: %w", err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok {
				greatest = max(greatest, RevisionOf(object))
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("find the greatest revision: %w", err)
		}
	}
	return greatest, nil
}

// WentBackError reports that the store has lost writes that were read from it.
type WentBackError struct{ Known, Live uint64 }

func (w *WentBackError) Error() string {
	return fmt.Sprintf("the store went back: it is at revision %d, and %d was read from it before; "+
		"was a backup restored without --bump-revision?", w.Live, w.Known)
}

const (
	// patience bounds one question. Without this bound, a dead connection blocks for much longer.
	patience = 5 * time.Second
	// period is the time between two questions while there is no outage. retry is the pause after a
	// question without an answer.
	period = time.Minute
	retry  = time.Second
	// quiet is the shortest time between two calls of Back: an API server of which some requests fail is not
	// asked for all leases after each of them.
	quiet = 10 * time.Second
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
	// Live handles each answer of a store that did not go back. It may be nil.
	Live func(uint64)
	// Back is called once the store has answered after an outage, and did not go back: watches may have missed
	// changes, and a store that was restored lacks writes. It is called at most every quiet. It may be nil.
	Back func()
	// Spread returns the time from the first answer to Back, anew for each outage: many processes must not read
	// together what they know. It is required with Back.
	Spread func() time.Duration
	Clock  clock.Clock
	Log    logr.Logger
}

// NeedLeaderElection makes a manager run the RevisionWatch also while it does not lead.
func (*RevisionWatch) NeedLeaderElection() bool { return false }

// Start asks the store after every outage, and periodically, until ctx ends. It returns a
// *WentBackError if the store went back.
func (r *RevisionWatch) Start(ctx context.Context) error {
	var known, seen uint64  // seen: the outages before the last call of Back
	var told, due time.Time // the last call of Back, and the next one
	l := loop.Loop{Clock: r.Clock, Period: period, Wake: r.Outages.over, First: retry, Most: retry}
	l.Failed = func(err error) {
		r.Log.V(1).Info("the revision of the store could not be read; trying again", "why", err.Error())
	}
	return l.Pace(ctx, func(ctx context.Context) (time.Duration, error) {
		ended := r.Outages.ended.Load()
		live, cached, err := r.ask(ctx)
		if err != nil {
			due = time.Time{} // the next answer has a spread of its own
			return 0, err
		}
		newest := max(known, cached, live)
		if r.Known != nil {
			r.Known(newest)
		}
		if live < newest {
			return loop.End, &WentBackError{Known: newest, Live: live}
		}
		known = live
		if r.Live != nil {
			r.Live(live)
		}
		if r.Back == nil || ended == seen {
			return 0, nil
		}
		now := r.Clock.Now()
		if due.IsZero() {
			due = now.Add(r.Spread())
		}
		if rest := max(due.Sub(now), quiet-now.Sub(told)); rest > 0 {
			return rest, nil
		}
		seen, told, due = ended, now, time.Time{}
		r.Back()
		return 0, nil
	})
}

// ask reads the caches first: their objects may be newer than the answer afterwards.
func (r *RevisionWatch) ask(ctx context.Context) (live, cached uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if cached, err = r.Cached(ctx); err != nil {
		return 0, 0, err
	}
	live, err = Revision(ctx, r.Reader)
	return live, cached, err
}

// Outages knows whether the API server answers, and reports when it answers again. A store can go back
// only during an outage, since the server is stopped for a restore.
type Outages struct {
	// since is the time of the first request that failed since the last answer; nil: none.
	since atomic.Pointer[time.Time]
	// ended counts the outages that are over, answers the answers.
	ended, answers atomic.Uint64
	over           loop.Wake
}

// NewOutages returns Outages for the requests of one process.
func NewOutages() *Outages { return &Outages{over: loop.NewWake()} }

// Since returns the beginning of the present outage. away is false if the last request had an answer.
func (o *Outages) Since() (since time.Time, away bool) {
	if at := o.since.Load(); at != nil {
		return *at, true
	}
	return time.Time{}, false
}

// Transport observes requests and answers. Pass it to the Wrap of a rest.Config. A request that ran out of time
// counts as failed only if no other one was answered since it was sent: a slow server is not away.
func (o *Outages) Transport(next http.RoundTripper) http.RoundTripper {
	return promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		before := o.answers.Load()
		response, err := next.RoundTrip(r)
		switch {
		case err != nil && errors.Is(r.Context().Err(), context.Canceled):
			// The caller has cancelled the request.
		case err != nil && r.Context().Err() != nil && o.answers.Load() != before:
			// The server is slow.
		case err != nil || response.StatusCode >= http.StatusInternalServerError:
			now := time.Now()
			o.since.CompareAndSwap(nil, &now)
		default:
			o.answers.Add(1)
			if o.since.Swap(nil) != nil {
				o.ended.Add(1)
				o.over.Up()
			}
		}
		return response, err
	})
}
