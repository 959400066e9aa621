// SPDX-License-Identifier: Apache-2.0

package loop

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/fenceline/fenceline/test/check"
)

func TestThePauseDoublesUpToTheLongest(t *testing.T) {
	for _, row := range []struct {
		failures int
		want     time.Duration
	}{
		{0, time.Second},
		{1, time.Second},
		{2, 2 * time.Second},
		{4, 8 * time.Second},
		{5, 10 * time.Second},
		{math.MaxInt, 10 * time.Second},
	} {
		check.Equal(t, Pause(time.Second, 10*time.Second, row.failures), row.want, "after %d failures:", row.failures)
	}
	check.Equal(t, Pause(time.Minute, time.Second, 1), time.Second, "a first pause that is too long:")
}

func TestASuccessBeginsThePausesAnew(t *testing.T) {
	b := Backoff{First: time.Second, Most: time.Minute}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		check.Equal(t, b.Next(), want, "got")
	}
	b.Reset()
	check.Equal(t, b.Next(), time.Second, "after a success:")
}

func TestOnlyANewErrorIsLogged(t *testing.T) {
	var b Backoff
	refused, full := errors.New("refused"), errors.New("full")
	for i, row := range []struct {
		err  error
		want bool
	}{
		{refused, true},
		{refused, false},
		{fmt.Errorf("refused"), false},
		{full, true},
		{refused, true},
	} {
		check.Equal(t, b.IsNew(row.err), row.want, "error %d, %v: new", i, row.err)
	}
	b.Reset()
	check.That(t, b.IsNew(refused), "after a success the same error is not new")
}

func TestToldKnowsTheErrorsOfEachThing(t *testing.T) {
	told := Told[string]{}
	refused := errors.New("refused")
	for i, row := range []struct {
		of   string
		err  error
		want bool
	}{
		{"a", refused, true},
		{"a", fmt.Errorf("refused"), false},
		{"b", refused, true},
		{"a", nil, false},
		{"a", refused, true},
		{"b", errors.New("full"), true},
	} {
		check.Equal(t, told.IsNew(row.of, row.err), row.want, "error %d, %v of %s: new", i, row.err, row.of)
	}
}
