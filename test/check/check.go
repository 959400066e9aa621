// SPDX-License-Identifier: Apache-2.0

// Package check ends a test whose step failed, and waits for conditions.
package check

import (
	"errors"
	"testing"
	"time"
)

// pause is the time between two looks at a condition.
const pause = 5 * time.Millisecond

// OK ends the test if err is not nil.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value returns v, and ends the test if err is not nil: check.Value(os.Open(path))(t).
func Value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// Eventually waits until the condition returns nil, and ends the test after the limit with the
// condition's last error.
func Eventually(t testing.TB, limit time.Duration, what string, condition func() error) {
	t.Helper()
	deadline := time.After(limit)
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("wait for %s: the test has ended: %v", what, err)
		case <-deadline:
			t.Fatalf("wait for %s: not within %s: %v", what, limit, err)
		case <-ticker.C:
		}
	}
}

// Becomes is Eventually for a condition without an error of its own.
func Becomes(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	Eventually(t, limit, what, func() error {
		if !condition() {
			return errors.New("the condition does not hold")
		}
		return nil
	})
}

// Receive returns what comes from the channel, and ends the test if nothing comes within the limit.
func Receive[T any](t testing.TB, limit time.Duration, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		t.Fatalf("wait for %s: not within %s", what, limit)
		panic("not reached")
	}
}
