package reclaim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// slowReads answer each question with the number of the read, once let go.
type slowReads struct {
	*together[string, int]
	letGo chan error
	// asked are the questions of each read that has begun.
	asked [][]string
	// gone are the reads that everybody had left.
	gone []int
}

func newSlowReads() *slowReads {
	s := &slowReads{letGo: make(chan error)}
	s.together = readTogether(func(ctx context.Context, subject string, questions []string) ([]answer[int], error) {
		s.asked = append(s.asked, questions)
		n := len(s.asked)
		select {
		case err := <-s.letGo:
			return slices.Repeat([]answer[int]{{value: n}}, len(questions)), err
		case <-ctx.Done():
			s.gone = append(s.gone, n)
			return nil, ctx.Err()
		}
	})
	return s
}

// asking is a question that waits for its answer.
type asking struct {
	read int
	err  error
	done bool
}

// ask puts a question, and returns when everybody waits.
func (s *slowReads) ask(ctx context.Context, subject, question string) *asking {
	a := &asking{}
	go func() {
		a.read, a.err = s.together.ask(ctx, subject, question)
		a.done = true
	}()
	synctest.Wait()
	return a
}

// finish ends the read under way.
func (s *slowReads) finish(err error) {
	s.letGo <- err
	synctest.Wait()
}

func (s *slowReads) wantIdle(t *testing.T) {
	t.Helper()
	if len(s.next) > 0 {
		t.Errorf("%d subjects are still being read", len(s.next))
	}
}

// TestWhoAsksDuringAReadWaitsForTheNext: what was read before the question may
// be older than what made somebody ask (R11).
func TestWhoAsksDuringAReadWaitsForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		first := s.ask(t.Context(), "default", "web-0")
		same, other := s.ask(t.Context(), "default", "web-0"), s.ask(t.Context(), "default", "web-1")
		again := s.ask(t.Context(), "default", "web-0")
		if len(s.asked) != 1 {
			t.Fatalf("%d reads of one subject at the same time", len(s.asked))
		}
		s.finish(nil)
		if !first.done || first.read != 1 {
			t.Errorf("who asked before read 1 got %+v", *first)
		}
		if same.done || other.done || again.done {
			t.Error("read 1 answered a question that was put after it began")
		}
		s.finish(nil)
		for _, a := range []*asking{same, other, again} {
			if !a.done || a.read != 2 || a.err != nil {
				t.Errorf("who asked during read 1 got %+v, want the answer of read 2", *a)
			}
		}
		if want := []string{"web-0", "web-1"}; !slices.Equal(s.asked[1], want) {
			t.Errorf("read 2 asks for %v, want %v, each once", s.asked[1], want)
		}
		s.wantIdle(t)
	})
}

func TestSubjectsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		s.ask(t.Context(), "default", "web-0")
		s.ask(t.Context(), "prod", "web-0")
		if len(s.asked) != 2 {
			t.Errorf("%d reads are under way, want one of each subject", len(s.asked))
		}
		s.finish(nil)
		s.finish(nil)
		s.wantIdle(t)
	})
}

func TestAFailedReadFailsForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, refused := newSlowReads(), errors.New("refused")
		first := s.ask(t.Context(), "default", "web-0")
		waiting := []*asking{s.ask(t.Context(), "default", "web-1"), s.ask(t.Context(), "default", "web-2")}
		s.finish(nil)
		if first.err != nil {
			t.Errorf("the error of a later read: %v", first.err)
		}
		s.finish(refused)
		for _, a := range waiting {
			if !a.done || !errors.Is(a.err, refused) {
				t.Errorf("got %+v, want the error of the read", *a)
			}
		}
		later := s.ask(t.Context(), "default", "web-1")
		s.finish(nil)
		if later.err != nil || later.read != 3 {
			t.Errorf("after a failed read: %+v", *later)
		}
		s.wantIdle(t)
	})
}

func TestWhoLeavesTakesNobodyAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		ctx, leave := context.WithCancel(t.Context())
		first := s.ask(ctx, "default", "web-0")
		firstOfNext, second := s.ask(ctx, "default", "web-1"), s.ask(t.Context(), "default", "web-2")
		leave()
		synctest.Wait()
		for _, a := range []*asking{first, firstOfNext} {
			if !a.done || !errors.Is(a.err, context.Canceled) || !strings.Contains(a.err.Error(), "of default") {
				t.Errorf("who left got %+v, want an error that says what it waited for", *a)
			}
		}
		if !slices.Equal(s.gone, []int{1}) {
			t.Errorf("reads given up: %v, want read 1, which nobody waits for", s.gone)
		}
		s.finish(nil)
		if !second.done || second.err != nil || second.read != 2 {
			t.Errorf("who stayed got %+v", *second)
		}
		s.wantIdle(t)
	})
}

func TestWhoAsksAfterAllLeftIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowReads()
		first := s.ask(t.Context(), "default", "web-0")
		ctx, leave := context.WithCancel(t.Context())
		s.ask(ctx, "default", "web-1")
		leave()
		synctest.Wait()
		later := s.ask(t.Context(), "default", "web-1")
		s.finish(nil)
		s.finish(nil)
		if first.err != nil || later.err != nil || later.read != 2 {
			t.Errorf("got %+v and %+v", *first, *later)
		}
		s.wantIdle(t)
	})
}
