// SPDX-License-Identifier: Apache-2.0

package pace

import (
	"sync"
	"time"

	"github.com/fenceline/fenceline/bpf"
)

// Limiter limits an action for each address to once per interval. Safe for concurrent use.
type Limiter struct {
	every time.Duration

	mu    sync.Mutex
	last  map[bpf.Key]time.Time
	swept time.Time
}

func NewLimiter(every time.Duration) *Limiter {
	return &Limiter{every: every, last: make(map[bpf.Key]time.Time)}
}

// Ready reports whether the action is allowed at now.
func (l *Limiter) Ready(key bpf.Key, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, ok := l.last[key]
	return !ok || now.Sub(last) >= l.every
}

// Note records that the action is done at now.
func (l *Limiter) Note(key bpf.Key, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	l.last[key] = now
}

// sweep deletes expired entries once per interval. The map has no more entries than addresses noted
// in two intervals.
func (l *Limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < l.every {
		return
	}
	l.swept = now
	for key, last := range l.last {
		if now.Sub(last) >= l.every {
			delete(l.last, key)
		}
	}
}
