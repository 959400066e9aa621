// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/test/check"
)

func TestPacerNeverSendsMoreThan256FramesInAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(clock.RealClock{})
		var at []time.Time
		var senders sync.WaitGroup
		for range 100 {
			senders.Go(func() {
				for range 41 {
					check.Is(t, p.Do(t.Context(), func() error { at = append(at, time.Now()); return nil }), nil, "got")
				}
			})
		}
		start := time.Now()
		senders.Wait()
		check.Equal(t, len(at), 4100, "frames:")
		for i := FramesPerMillisecond; i < len(at); i++ {
			d := at[i].Sub(at[i-FramesPerMillisecond])
			check.Must(t, d >= time.Millisecond, "frames %d to %d took %s", i-FramesPerMillisecond, i, d)
		}
		check.Equal(t, time.Since(start), 16*time.Millisecond, "4100 frames took")
	})
}

func TestPacerStopsWaitingWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPacer(clock.RealClock{})
		<-p.turn // somebody else sends
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check.Is(t, p.Do(ctx, func() error { t.Error("sent"); return nil }), context.Canceled, "got")
		p.turn <- struct{}{}
	})
}
