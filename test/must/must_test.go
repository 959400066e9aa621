// SPDX-License-Identifier: Apache-2.0

package must_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/must"
)

func TestTheFirstFailedStepEndsTheOthers(t *testing.T) {
	broken := errors.New("broken")
	for name, row := range map[string]struct {
		step func()
		want string
	}{
		"OK":         {func() { must.OK(broken) }, "read: broken"},
		"Value":      {func() { must.Value(1, broken) }, "read: broken"},
		"Done":       {func() { must.Done(broken, "open %d", 1) }, "read: open 1: broken"},
		"That":       {func() { must.That(false, "it is %w", broken) }, "read: it is broken"},
		"Failure":    {func() { panic(must.Failure("it is %w", broken)) }, "read: it is broken"},
		"a Try":      {func() { must.OK(must.Try(func() { must.OK(broken) })) }, "read: broken"},
		"no failure": {func() { must.OK(nil); must.That(must.Value(true, nil), ""); must.Done(nil, "") }, "<nil>"},
	} {
		went := false
		err := func() (err error) {
			defer must.CatchIn(&err, "read")
			row.step()
			went = true
			return nil
		}()
		check.That(t, fmt.Sprint(err) == row.want && went == (err == nil), "%s: the steps ended with %v, and went on: %v", name, err, went)
	}
}

func TestAPanicOfNoStepIsNotCaught(t *testing.T) {
	defer func() { check.That(t, recover() == "a fault", "the panic was caught") }()
	_ = must.Try(func() { panic("a fault") })
}

func TestAReturnedErrorNamesTheAttemptToo(t *testing.T) {
	err := func() (err error) {
		defer must.CatchIn(&err, "read")
		return errors.New("broken")
	}()
	check.That(t, fmt.Sprint(err) == "read: broken", "%v", err)
}
