// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

// Each virtual machine that migrates has one watch, which wakes its leases. If it ends, they are woken so that the
// machine is read at a short period, and a next watch begins after a pause.
func TestAMigrationIsWatchedAndReadWithoutAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun, woken := 0, 0
		changes, ends := make(chan struct{}), make(chan error)
		w := follower{
			clock: clock.RealClock{}, open: map[string]bool{}, wake: func(context.Context, *v1alpha1.Holder) { woken++ },
			watch: func(ctx context.Context, _ *v1alpha1.Holder, changed func()) error {
				for begun++; ; {
					select {
					case <-changes:
						changed()
					case err := <-ends:
						return err
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			},
		}
		h := owner.MachinePod("shop", "a", "a", "db")
		is := func(what string, isOpen bool, watches, wakes int) {
			t.Helper()
			synctest.Wait()
			got := w.follow(ctx, &h)
			synctest.Wait()
			check.That(t, got == isOpen && begun == watches && woken == wakes, "%s: watched %t, %d watches, woken %d times, want %t, %d, %d",
				what, got, begun, woken, isOpen, watches, wakes)
		}
		is("at first", false, 1, 0)
		is("before the watch has begun", false, 1, 0)
		changes <- struct{}{}
		is("it has begun", true, 1, 1)
		changes <- struct{}{}
		is("a change", true, 1, 2)
		for i, end := range []struct {
			err   error
			pause time.Duration
		}{{nil, watchPause}, {owner.ErrNoRight, watchLimit}, {errors.New("away"), watchPause}} {
			ends <- end.err
			is("it has ended", false, 1+i, 3+i)
			time.Sleep(end.pause - 1)
			is("in the pause", false, 1+i, 3+i)
			time.Sleep(time.Nanosecond)
			is("after the pause", false, 2+i, 3+i)
		}
		cancel()
		synctest.Wait()
	})
}
