package revision

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// patience bounds one question: a connection that went dead without a word
	// would block for much longer.
	patience = 5 * time.Second
	// period is how often the store is asked without cause, retry how soon again
	// while it does not answer.
	period = time.Minute
	retry  = time.Second
)

// Watch ends a process whose caches hold what the store does not know any more:
// a watch that goes on from there may stay silent until the store has come as
// far again. The next process lists anew.
type Watch struct {
	// Reader reads past any cache.
	Reader client.Reader
	// Cached returns the greatest revision among what the caches hold.
	Cached func(context.Context) (uint64, error)
	// Outages tell when the API server may hold something else.
	Outages *Outages
	// Live is told how far the store has come, whenever it was asked; it may be nil.
	Live  func(uint64)
	Clock clock.Clock
	Log   logr.Logger
}

// NeedLeaderElection makes a manager watch also while it does not lead.
func (*Watch) NeedLeaderElection() bool { return false }

// Start asks the store after every outage, and from time to time, until
// ctx ends. It returns a *WentBackError if the store went back.
func (w *Watch) Start(ctx context.Context) error {
	var known uint64
	for ctx.Err() == nil {
		wait := period
		live, cached, err := w.ask(ctx)
		switch {
		case err != nil:
			w.Log.V(1).Info("the store does not say how far it has come", "why", err.Error())
			wait = retry
		case live < max(known, cached):
			return &WentBackError{Known: max(known, cached), Live: live}
		default:
			known = live
			if w.Live != nil {
				w.Live(live)
			}
		}
		timer := w.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-w.Outages.over:
		}
		timer.Stop()
	}
	return nil
}

// ask looks into the caches first: what is read from them later may be newer than the answer.
func (w *Watch) ask(ctx context.Context) (live, cached uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if cached, err = w.Cached(ctx); err != nil {
		return 0, 0, err
	}
	live, err = Live(ctx, w.Reader)
	return live, cached, err
}
