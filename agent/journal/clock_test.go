// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/fenceline/fenceline/test/check"
)

// laterAfterStep is what a clock shows d after t that was set back by an hour in between.
func laterAfterStep(t time.Time, d time.Duration) time.Time {
	t = t.Add(-time.Hour)
	// As package time keeps the wall clock, and the monotonic one that no step changes.
	(*struct {
		wall      uint64
		monotonic int64
		loc       *time.Location
	})(unsafe.Pointer(&t)).monotonic += int64(time.Hour + d)
	return t
}

// By the one clock or the other each of the three sorts comes after another one, in a circle.
func TestEntriesAreFoundAgainAfterTheClockWasSetBack(t *testing.T) {
	j := open(t, t.TempDir())
	now := time.Now()
	e := entry("before")
	e.Created = now.Add(-30 * time.Minute).Round(0)
	put(t, j, e)
	e = entry("wrong")
	e.Created = now
	put(t, j, e)
	for i := range 4 {
		e = entry(fmt.Sprint("today-", i))
		e.Created = laterAfterStep(now, time.Duration(i+1)*time.Second)
		put(t, j, e)
	}
	all := slices.Clone(j.All())
	for _, e := range all {
		again := *e
		again.Phase = Releasing
		put(t, j, again)
	}
	if n := len(j.All()); n != len(all) {
		t.Errorf("%d entries, want %d", n, len(all))
	}
	for _, e := range all {
		check.OK(t, j.Remove(e.ContainerID, e.Interface))
	}
	if left := j.All(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
