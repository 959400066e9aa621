// SPDX-License-Identifier: Apache-2.0

package node

import (
	"sync"
)

// locks has a lock for each key that is locked or waited for. The zero value is
// ready for use.
type locks[K comparable] struct {
	mu   sync.Mutex
	held map[K]*heldLock
}

type heldLock struct {
	sync.Mutex
	users int
}

// lock returns the function that unlocks.
func (l *locks[K]) lock(k K) (unlock func()) {
	one := l.join(k)
	one.Lock()
	return func() { l.unlock(k, one) }
}

// tryLock does not wait: ok is false while the key is locked.
func (l *locks[K]) tryLock(k K) (unlock func(), ok bool) {
	one := l.join(k)
	if !one.TryLock() {
		l.quit(k, one)
		return nil, false
	}
	return func() { l.unlock(k, one) }, true
}

func (l *locks[K]) join(k K) *heldLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[K]*heldLock{}
	}
	one := l.held[k]
	if one == nil {
		one = &heldLock{}
		l.held[k] = one
	}
	one.users++
	return one
}

func (l *locks[K]) unlock(k K, one *heldLock) {
	one.Unlock()
	l.quit(k, one)
}

func (l *locks[K]) quit(k K, one *heldLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(l.held, k)
	}
}
