// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

const timeout = 10 * time.Second

// slowReads are reads whose result is the number of the read. Each read ends at a call of finish.
type slowReads struct {
	*Reads[int]
	end chan error
	// begun are the keys of the reads that have begun.
	begun []string
}

func newSlowReads() *slowReads {
	s := &slowReads{end: make(chan error)}
	s.Reads = NewReads("node", timeout, func(ctx context.Context, key string) (int, error) {
		s.begun = append(s.begun, key)
		n := len(s.begun)
		select {
		case err := <-s.end:
			return n, err
		case <-ctx.Done():
			return n, ctx.Err()
		}
	})
	return s
}

// call is one call of Get.
type call struct {
	read int
	err  error
	done bool
}

// ask calls Get, and returns when all callers wait.
func (s *slowReads) ask(ctx context.Context, key string) *call {
	c := &call{}
	go func() {
		c.read, c.err = s.Get(ctx, key)
		c.done = true
	}()
	synctest.Wait()
	return c
}

// finish ends one read.
func (s *slowReads) finish(err error) {
	s.end <- err
	synctest.Wait()
}

func (s *slowReads) wantIdle(t *testing.T) {
	t.Helper()
	check.That(t, len(s.newest) == 0, "%d keys still have reads", len(s.newest))
}

// TestACallDuringAReadWaitsForTheNextRead: a read that began before the call may be older than the
// observation that the caller confirms (R11).
func TestACallDuringAReadWaitsForTheNextRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		first := s.ask(t.Context(), "n1")
		later := []*call{s.ask(t.Context(), "n1"), s.ask(t.Context(), "n1")}
		check.Must(t, len(s.begun) == 1, "%d reads of one key at the same time", len(s.begun))
		s.finish(nil)
		check.That(t, first.done && first.read == 1, "the caller of read 1 got %+v", *first)
		for _, c := range later {
			check.That(t, !c.done, "read 1 answered a call that came after it began")
		}
		s.finish(nil)
		for _, c := range later {
			check.That(t, c.done && c.read == 2 && c.err == nil, "a call during read 1 got %+v, want the result of read 2", *c)
		}
		s.wantIdle(t)
	})
}

func TestReadsOfDifferentKeysDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		s.ask(t.Context(), "n1")
		s.ask(t.Context(), "n2")
		check.List(t, s.begun, []string{"n1", "n2"}, "reads that have begun:")
		s.finish(nil)
		s.finish(nil)
		s.wantIdle(t)
	})
}

func TestAFailedReadFailsForItsOwnCallersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, refused := newSlowReads(), errors.New("refused")
		first := s.ask(t.Context(), "n1")
		waiting := []*call{s.ask(t.Context(), "n1"), s.ask(t.Context(), "n1")}
		s.finish(nil)
		check.That(t, first.err == nil, "read 1 got the error of read 2: %v", first.err)
		s.finish(refused)
		for _, c := range waiting {
			check.That(t, c.done && errors.Is(c.err, refused), "got %+v, want the error of the read", *c)
		}
		after := s.ask(t.Context(), "n1")
		s.finish(nil)
		check.That(t, after.err == nil && after.read == 3, "a call after a failed read got %+v", *after)
		s.wantIdle(t)
	})
}

// The controller recovers from a panic of a reconcile and goes on. The callers that share the read
// must not take its end for "the object does not exist".
func TestAReadThatPanicsFailsForItsCallersAndBlocksNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := make(chan func() int)
		s := &slowReads{Reads: NewReads("node", timeout, func(context.Context, string) (int, error) { return (<-reads)(), nil })}
		ask := func() *call { return s.ask(t.Context(), "n1") }
		before := ask()
		waiting := []*call{ask(), ask()}
		reads <- func() int { return 1 }
		synctest.Wait()
		reads <- func() int { panic("a bug") }
		synctest.Wait()
		check.That(t, before.done && before.read == 1, "the caller of read 1 got %+v", *before)
		for _, c := range waiting {
			check.Must(t, c.done && c.err != nil, "a caller of the read that panicked got %+v", *c)
		}
		after := ask()
		reads <- func() int { return 3 }
		synctest.Wait()
		check.That(t, after.done && after.read == 3 && after.err == nil, "a later call got %+v", *after)
	})
}

// An API server that never answers one read must not hold its callers, nor those that come later.
func TestAReadThatNeverEndsFailsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		first, later := s.ask(t.Context(), "n1"), s.ask(t.Context(), "n1")
		time.Sleep(timeout)
		synctest.Wait()
		check.That(t, first.done && errors.Is(first.err, context.DeadlineExceeded), "the caller of the read that never ended got %+v", *first)
		s.finish(nil)
		check.That(t, later.done && later.err == nil && later.read == 2, "a later call got %+v", *later)
		s.wantIdle(t)
	})
}

func TestACallerThatLeavesDoesNotEndTheReadOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		ctx, leave := context.WithCancel(t.Context())
		first, other := s.ask(ctx, "n1"), s.ask(t.Context(), "n1")
		leave()
		synctest.Wait()
		check.That(t, first.done && errors.Is(first.err, context.Canceled), "the caller that left got %+v", *first)
		s.finish(nil)
		s.finish(nil)
		check.That(t, other.done && other.err == nil && other.read == 2, "the other caller got %+v", *other)
		s.wantIdle(t)
	})
}
