// SPDX-License-Identifier: Apache-2.0

package loop

import "time"

// Backoff is the state of a step that is tried until it succeeds. Set First and Most before the
// first use. It waits for nothing and logs nothing itself. One goroutine may use it.
type Backoff struct {
	// First is the pause after the first failure. Each further failure doubles it, up to Most.
	First, Most time.Duration

	failures int
	reported string
}

// Next counts a failure and returns the pause before the next try.
func (b *Backoff) Next() time.Duration {
	b.failures++
	return Pause(b.First, b.Most, b.failures)
}

// IsNew reports whether the text of an error differs from the text of the last error that it was
// asked about. Log only new errors: the same line after each try hides all others.
func (b *Backoff) IsNew(err error) bool {
	text := err.Error()
	isNew := text != b.reported
	b.reported = text
	return isNew
}

// Reset forgets all failures. Call it after a success.
func (b *Backoff) Reset() { b.failures, b.reported = 0, "" }

// Pause returns the pause after some failures in a row: first after one failure, twice as long
// after each further failure, and at most most.
func Pause(first, most time.Duration, failures int) time.Duration {
	pause := first
	for ; failures > 1 && pause < most; failures-- {
		pause *= 2
	}
	return min(pause, most)
}

// Told has the text of the last error of each of several things, for those that are tried at a steady pace.
type Told[K comparable] map[K]string

// IsNew reports whether the text of an error of a thing differs from the last one. It forgets the last one
// if err is nil.
func (t Told[K]) IsNew(of K, err error) bool {
	if err == nil {
		delete(t, of)
		return false
	}
	isNew := t[of] != err.Error()
	t[of] = err.Error()
	return isNew
}
