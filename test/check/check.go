// SPDX-License-Identifier: Apache-2.0

// Package check ends a test whose step failed, compares values, and waits for conditions. The messages
// are formats of fmt.
package check

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceline/fenceline/test/await"
)

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

// Err returns the error of a call with two results: check.Err(os.Stat(path)).
func Err[T any](_ T, err error) error { return err }

// Must ends the test with the message unless the condition holds.
func Must(t testing.TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}

// That is Must for a test that goes on.
func That(t testing.TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}

// Equal reports the message with both values if they differ. The test goes on.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		differ(t, got, want, fmt.Sprintf(format, args...))
	}
}

// List is Equal for slices. No slice equals an empty one.
func List[S ~[]E, E comparable](t testing.TB, got, want S, format string, args ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		differ(t, got, want, fmt.Sprintf(format, args...))
	}
}

// Is reports the message with both errors unless errors.Is finds want. The test goes on.
func Is(t testing.TB, got, want error, format string, args ...any) {
	t.Helper()
	if !errors.Is(got, want) {
		differ(t, got, want, fmt.Sprintf(format, args...))
	}
}

// None reports the message with the values of a list or map unless it is empty. The test goes on.
func None(t testing.TB, got any, format string, args ...any) {
	t.Helper()
	if reflect.ValueOf(got).Len() > 0 {
		differ(t, got, "none", fmt.Sprintf(format, args...))
	}
}

// Says reports each part that a text or an error lacks. A nil error lacks all. The test goes on.
func Says(t testing.TB, got any, parts ...string) {
	t.Helper()
	text := fmt.Sprint(got)
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

func differ(t testing.TB, got, want any, what string) {
	t.Helper()
	if _, ok := got.(string); ok {
		t.Errorf("%s %q, want %q", what, got, want)
		return
	}
	t.Errorf("%s %+v, want %+v", what, got, want)
}

// Same reports the message with what differs between two values of any type. The test goes on.
func Same(t testing.TB, got, want any, format string, args ...any) {
	t.Helper()
	SameBy(t, nil, got, want, format, args...)
}

// SameBy is Same with options of the comparison.
func SameBy(t testing.TB, by cmp.Options, got, want any, format string, args ...any) {
	t.Helper()
	if diff := cmp.Diff(want, got, by); diff != "" {
		t.Errorf("%s (-want +got):\n%s", fmt.Sprintf(format, args...), diff)
	}
}

// Eventually waits until the condition returns nil, and ends the test after the limit with the
// condition's last error.
func Eventually(t testing.TB, limit time.Duration, what string, condition func() error) {
	t.Helper()
	OK(t, await.Until(t.Context(), limit, what, func(context.Context) error { return condition() }))
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
