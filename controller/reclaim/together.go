package reclaim

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// together lets those who ask about one subject at the same time share a read. A
// read answers only those who asked before it began, so each learns what was
// true after its question; who asks meanwhile waits for the next. Safe for
// concurrent use.
type together[Q comparable, T any] struct {
	// read answers all questions about a subject, in their order, or none.
	read func(ctx context.Context, subject string, questions []Q) ([]answer[T], error)

	mu sync.Mutex
	// next holds the group that a subject's next read answers, or nil, for each
	// subject that is being read.
	next map[string]*group[Q, T]
}

// answer to one question.
type answer[T any] struct {
	value T
	err   error
}

// group of those whom one read answers.
type group[Q comparable, T any] struct {
	// ctx ends when nobody waits any more.
	ctx     context.Context
	cancel  context.CancelFunc
	waiting int
	asked   []Q
	// done is closed when answers or err are there.
	done    chan struct{}
	answers []answer[T]
	err     error
}

func readTogether[Q comparable, T any](read func(context.Context, string, []Q) ([]answer[T], error)) *together[Q, T] {
	return &together[Q, T]{read: read, next: map[string]*group[Q, T]{}}
}

// ask returns what a read that begins after the call says.
func (t *together[Q, T]) ask(ctx context.Context, subject string, question Q) (T, error) {
	var none T
	g, i := t.join(ctx, subject, question)
	select {
	case <-g.done:
	case <-ctx.Done():
		t.leave(g)
		return none, fmt.Errorf("wait for the live read about %v of %s: %w", question, subject, ctx.Err())
	}
	if g.err != nil {
		return none, g.err
	}
	return g.answers[i].value, g.answers[i].err
}

// join puts a question to the group of a subject's next read, and returns its place there.
func (t *together[Q, T]) join(ctx context.Context, subject string, question Q) (*group[Q, T], int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, reading := t.next[subject]
	if g == nil || g.ctx.Err() != nil {
		g = &group[Q, T]{done: make(chan struct{})}
		// The read goes on for the others when the first of them leaves.
		g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
		t.next[subject] = g
	}
	g.waiting++
	i := slices.Index(g.asked, question)
	if i < 0 {
		i = len(g.asked)
		g.asked = append(g.asked, question)
	}
	if !reading {
		go t.readOn(subject)
	}
	return g, i
}

// leave gives an answer up that nobody waits for any more.
func (t *together[Q, T]) leave(g *group[Q, T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.waiting--; g.waiting == 0 {
		g.cancel()
	}
}

// readOn reads about a subject until nobody asks any more.
func (t *together[Q, T]) readOn(subject string) {
	for {
		g := t.begin(subject)
		if g == nil {
			return
		}
		g.answers, g.err = t.read(g.ctx, subject, g.asked)
		g.cancel()
		close(g.done)
	}
}

// begin closes the group that waits. It is nil, and nobody reads, where nobody asked.
func (t *together[Q, T]) begin(subject string) *group[Q, T] {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.next[subject]
	if g == nil {
		delete(t.next, subject)
		return nil
	}
	t.next[subject] = nil
	return g
}
