package reclaim

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

const (
	// toldAtOnce is how many reclaims have an event of their own when many come at
	// once, and toldPerSecond how many if they go on. Both are less than what
	// controller/eventpace lets through, so that no event waits.
	toldAtOnce    = 40
	toldPerSecond = 5
	// digestPeriod is how often the others are told of in sum.
	digestPeriod = 5 * time.Second
)

// cause is what many reclaims have in common.
type cause struct {
	pool, node string
	reason     v1alpha1.LeaseReason
}

// digest tells of a storm of reclaims in few events: nobody reads thousands, and
// the API server has better to do. Metric and audit line tell of each. Safe for
// concurrent use.
type digest struct {
	pace flowcontrol.PassiveRateLimiter

	mu     sync.Mutex
	untold map[cause]int
}

func newDigest(c clock.PassiveClock) *digest {
	return &digest{
		pace:   flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(toldPerSecond, toldAtOnce, c),
		untold: map[cause]int{},
	}
}

// take says whether a reclaim is to be told of by itself. Otherwise it is counted.
func (d *digest) take(c cause) bool {
	if d.pace.TryAccept() {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.untold[c]++
	return false
}

// sums returns how many of each cause were counted since the last call.
func (d *digest) sums() map[cause]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	sums := d.untold
	d.untold = map[cause]int{}
	return sums
}

// tellSums tells every digestPeriod, until the context ends, of the reclaims that
// had no event of their own.
func (r *Reconciler) tellSums(ctx context.Context) error {
	ticker := r.Clock.NewTicker(digestPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			r.tellSumsOnce()
		}
	}
}

func (r *Reconciler) tellSumsOnce() {
	for c, n := range r.digest.sums() {
		pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: c.pool}}
		r.Events.Eventf(pool, nil, corev1.EventTypeWarning, eventReclaimedMore, "Quarantine",
			"addresses of pool %s taken from holders on node %s, without events of their own: %d (%s); the audit lines name each", c.pool, c.node, n, c.reason)
	}
}
