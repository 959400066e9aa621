// SPDX-License-Identifier: Apache-2.0

// Package must ends the steps of a rig at the first one that fails. A step that ends them panics, and the
// function that began them returns the error:
//
//	func readSum(file string) (_ string, err error) {
//		defer must.Catch(&err)
//		sum := sha256.Sum256(must.Value(os.ReadFile(file)))
//		return hex.EncodeToString(sum[:]), nil
//	}
//
// A goroutine catches its own failures, by Catch or Try.
package must

import "fmt"

// failure is the panic of a step that failed.
type failure struct{ error }

// OK ends the steps if one has failed.
func OK(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Value returns v, and ends the steps if err is not nil: must.Value(os.ReadFile(file)).
func Value[T any](v T, err error) T {
	OK(err)
	return v
}

// Done is OK for an error that does not name the attempt.
func Done(err error, format string, args ...any) {
	if err != nil {
		panic(failure{fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)})
	}
}

// That ends the steps with an error unless the condition holds.
func That(holds bool, format string, args ...any) {
	if !holds {
		panic(failure{fmt.Errorf(format, args...)})
	}
}

// Catch sets err to what has ended the steps. It is deferred before the first step. A deferred function
// that adds to err is deferred before it.
func Catch(err *error) {
	if ended := recover(); ended != nil {
		*err = reason(ended)
	}
}

// CatchIn is Catch, and names the attempt in each error, also in one that the function returns.
func CatchIn(err *error, format string, args ...any) {
	if ended := recover(); ended != nil {
		*err = reason(ended)
	}
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), *err)
	}
}

// Try returns what has ended the steps.
func Try(steps func()) (err error) {
	defer Catch(&err)
	steps()
	return nil
}

// reason panics again with what no step has caused.
func reason(ended any) error {
	if f, ok := ended.(failure); ok {
		return f.error
	}
	panic(ended)
}

// Failure is for a panic at the end of a function: the steps end with this error.
func Failure(format string, args ...any) any { return failure{fmt.Errorf(format, args...)} }
