// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/bpf"
	"github.com/fenceline/fenceline/test/check"
)

func TestPacerNeverSendsMoreThan256FramesInAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(clock.RealClock{})
		var at []time.Time
		var senders sync.WaitGroup
		for range 100 {
			senders.Go(func() {
				for range 41 {
					check.Is(t, p.do(t.Context(), func() error { at = append(at, time.Now()); return nil }), nil, "got")
				}
			})
		}
		start := time.Now()
		senders.Wait()
		equal(t, "frames", len(at), 4100)
		for i := framesPerMillisecond; i < len(at); i++ {
			d := at[i].Sub(at[i-framesPerMillisecond])
			check.Must(t, d >= time.Millisecond, "frames %d to %d took %s", i-framesPerMillisecond, i, d)
		}
		d, want := time.Since(start), 16*time.Millisecond
		check.That(t, d == want, "4100 frames took %s, want %s", d, want)
	})
}

func TestPacerStopsWaitingWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(clock.RealClock{})
		<-p.turn // somebody else sends
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := p.do(ctx, func() error { t.Error("sent"); return nil })
		check.Must(t, errors.Is(err, context.Canceled), "err = %v", err)
		p.turn <- struct{}{}
	})
}

func TestLimiterAllowsAtOnceThenOncePerInterval(t *testing.T) {
	start := time.Now()
	l := newLimiter(10 * time.Second)
	allow := func(k bpf.Key, after time.Duration) bool {
		ok := l.ready(k, start.Add(after))
		if ok {
			l.note(k, start.Add(after))
		}
		return ok
	}
	for _, tc := range []struct {
		key   bpf.Key
		after time.Duration
		want  bool
	}{
		{key(addr4), 0, true},
		{key(addr4), time.Second, false},
		{key(addr6), time.Second, true},
		{key(addr4), 9999 * time.Millisecond, false},
		{key(addr4), 10 * time.Second, true},
		{key(addr4), 19 * time.Second, false},
	} {
		check.Equal(t, allow(tc.key, tc.after), tc.want, "%s after %s:", tc.key, tc.after)
	}
	l.note(key(addr4), start.Add(time.Hour))
	equal(t, "addresses remembered after an hour", len(l.last), 1)
}
