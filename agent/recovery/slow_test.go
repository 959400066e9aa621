// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// slow is an API server that takes a time for each write. It carries out a write whose caller has given up.
type slow struct {
	*fakenode.API
	by     time.Duration
	writes *atomic.Int64
}

func (s slow) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	s.writes.Add(1)
	done := make(chan error, 1)
	go func() {
		time.Sleep(s.by)
		done <- s.API.Delete(context.WithoutCancel(ctx), o, opts...)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The DELs of an outage are carried out by an API server that is slow after it, hardly any twice.
func TestASlowAPIServerGetsEachWriteOnce(t *testing.T) {
	const pods, again = 20, 3
	for _, by := range []time.Duration{0, 300 * time.Millisecond, 3 * time.Second} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.99"))
				s := slow{r.API, by, &atomic.Int64{}}
				store := lease.NewStore(lease.Options{Client: s, Reader: r.API, Node: fakenode.ThisNode, Session: fakenode.ThisSession, Clock: clock.RealClock{}})
				r.Recovery.Leases, r.Releaser.Leases = store, store
				for i := range pods {
					web := r.Pod(fmt.Sprintf("web-%d", i), fmt.Sprintf("u%d", i))
					r.MustAdd(web)
					r.API.SetAway(true)
					r.MustDel(web)
					r.API.SetAway(false)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error, 1)
				began := time.Now()
				go func() { done <- r.Recovery.Run(ctx) }()
				r.Eventually("the leases are freed", func() bool { return len(r.Names()) == 0 })
				took := time.Since(began)
				t.Logf("%s a write: %d leases were freed by %d writes in %s", by, pods, s.writes.Load(), took)
				check.That(t, s.writes.Load() <= pods+again && took <= pods*by/3+3*time.Second, "%d writes in %s", s.writes.Load(), took)
				stop()
				check.Is(t, <-done, nil, "got")
			})
		})
	}
}
