// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// shared lets callers that ask for one key at the same time use one read. A read answers only the
// callers that asked before it began (R11): a call during a read waits for the next read. Each
// read has the context of its first caller. Safe for concurrent use.
type shared[T any] struct {
	read func(ctx context.Context, key string) (T, error)

	mu sync.Mutex
	// newest has the last read of each key that has not ended.
	newest map[string]*sharedRead[T]
}

// sharedRead is one read. Its result is there when done is closed.
type sharedRead[T any] struct {
	// before is the read of the key that has to end first, or nil.
	before *sharedRead[T]
	begun  bool
	done   chan struct{}
	value  T
	err    error
}

func shareReads[T any](read func(ctx context.Context, key string) (T, error)) *shared[T] {
	return &shared[T]{read: read, newest: map[string]*sharedRead[T]{}}
}

// get returns the result of a read that begins after the call. The caller must not change it.
func (s *shared[T]) get(ctx context.Context, key string) (T, error) {
	r, isFirst := s.join(key)
	if isFirst {
		s.carryOut(ctx, key, r)
	}
	<-r.done
	return r.value, r.err
}

// join returns the read of a key that has not begun. The first caller carries it out.
func (s *shared[T]) join(key string) (r *sharedRead[T], isFirst bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.newest[key]
	if newest != nil && !newest.begun {
		return newest, false
	}
	r = &sharedRead[T]{before: newest, done: make(chan struct{})}
	s.newest[key] = r
	return r, true
}

// carryOut reads when no earlier read of the key is under way. If the read panics, which the
// controller survives, the other callers get an error.
func (s *shared[T]) carryOut(ctx context.Context, key string, r *sharedRead[T]) {
	if r.before != nil {
		<-r.before.done
	}
	s.mu.Lock()
	r.begun, r.before = true, nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.newest[key] == r {
			delete(s.newest, key)
		}
		close(r.done)
	}()
	r.err = fmt.Errorf("live read of %s: %w", key, errUnfinished)
	r.value, r.err = s.read(ctx, key)
}

// errUnfinished is the result of a read that ended in a panic. No result at all would mean that
// the object does not exist.
var errUnfinished = errors.New("the read did not finish")
