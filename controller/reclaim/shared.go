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

	mu   sync.Mutex
	keys map[string]*sharedKey[T]
}

// sharedKey is a key for which callers wait.
type sharedKey[T any] struct {
	callers int
	// next is the read that has not begun; nil if there is none.
	next *sharedRead[T]
	// turn is full during a read.
	turn chan struct{}
}

// sharedRead is one read. Its result is there when done is closed.
type sharedRead[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func shareReads[T any](read func(ctx context.Context, key string) (T, error)) *shared[T] {
	return &shared[T]{read: read, keys: map[string]*sharedKey[T]{}}
}

// get returns the result of a read that begins after the call. The caller must not change it.
func (s *shared[T]) get(ctx context.Context, key string) (T, error) {
	k, r, isFirst := s.join(key)
	defer s.leave(key, k)
	if isFirst {
		s.carryOut(ctx, key, k, r)
	}
	<-r.done
	return r.value, r.err
}

// carryOut reads when no earlier read of the key is under way. If the read panics, which the
// controller survives, the other callers get an error.
func (s *shared[T]) carryOut(ctx context.Context, key string, k *sharedKey[T], r *sharedRead[T]) {
	k.turn <- struct{}{}
	s.begin(k)
	defer func() {
		<-k.turn
		close(r.done)
	}()
	r.err = fmt.Errorf("live read of %s: %w", key, errUnfinished)
	r.value, r.err = s.read(ctx, key)
}

// errUnfinished is the result of a read that ended in a panic. No result at all would mean that
// the object does not exist.
var errUnfinished = errors.New("the read did not finish")

// join adds a caller to the next read of a key. The first caller carries the read out.
func (s *shared[T]) join(key string) (k *sharedKey[T], next *sharedRead[T], isFirst bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k = s.keys[key]
	if k == nil {
		k = &sharedKey[T]{turn: make(chan struct{}, 1)}
		s.keys[key] = k
	}
	if k.next == nil {
		k.next, isFirst = &sharedRead[T]{done: make(chan struct{})}, true
	}
	k.callers++
	return k, k.next, isFirst
}

// begin makes later callers wait for another read.
func (s *shared[T]) begin(k *sharedKey[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.next = nil
}

func (s *shared[T]) leave(key string, k *sharedKey[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.callers--; k.callers == 0 {
		delete(s.keys, key)
	}
}
