// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Reads are the reads of one kind of things, by their keys. Calls share a read: each gets the first one
// that begins after the call, so the result is never older than what the caller has seen (R11). Safe for
// concurrent use.
type Reads[T any] struct {
	what    string
	timeout time.Duration
	do      func(ctx context.Context, key string) (T, error)

	mu sync.Mutex
	// newest has the last read of each key that has not ended.
	newest map[string]*read[T]
}

// read is one read. Its result is there when done is closed.
type read[T any] struct {
	begun bool
	done  chan struct{}
	value T
	err   error
}

// NewReads returns Reads that are carried out by do, within a time. Errors name the things as what.
func NewReads[T any](what string, timeout time.Duration, do func(ctx context.Context, key string) (T, error)) *Reads[T] {
	return &Reads[T]{what: what, timeout: timeout, do: do, newest: map[string]*read[T]{}}
}

// Get returns the result of a read that begins after the call. Other callers have the same value, so
// the caller must not change it. A read goes on if one of its callers leaves.
func (s *Reads[T]) Get(ctx context.Context, key string) (T, error) { return s.Begin(ctx, key)() }

// Begin is Get for a caller that has other reads to make meanwhile. result waits for the read.
func (s *Reads[T]) Begin(ctx context.Context, key string) (result func() (T, error)) {
	r := s.join(ctx, key)
	return func() (T, error) {
		select {
		case <-r.done:
			return r.value, r.err
		case <-ctx.Done():
			var none T
			return none, fmt.Errorf("read %s %s: %w", s.what, key, ctx.Err())
		}
	}
}

// join returns the read of a key that has not begun.
func (s *Reads[T]) join(ctx context.Context, key string) *read[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.newest[key]
	if before != nil && !before.begun {
		return before
	}
	r := &read[T]{done: make(chan struct{})}
	s.newest[key] = r
	go s.carryOut(context.WithoutCancel(ctx), key, before, r)
	return r
}

// carryOut reads after the end of the read before, which may be nil. A panic is an error of the read:
// no result at all could mean that there is no such object.
func (s *Reads[T]) carryOut(ctx context.Context, key string, before, r *read[T]) {
	if before != nil {
		<-before.done
	}
	s.mu.Lock()
	r.begun = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("read %s %s: panic: %v\n%s", s.what, key, p, debug.Stack())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.newest[key] == r {
			delete(s.newest, key)
		}
		close(r.done)
	}()
	r.value, r.err = s.do(ctx, key)
}
