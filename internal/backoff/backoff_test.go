// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"
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
		if got := Pause(time.Second, 10*time.Second, row.failures); got != row.want {
			t.Errorf("after %d failures: %s, want %s", row.failures, got, row.want)
		}
	}
	if got := Pause(time.Minute, time.Second, 1); got != time.Second {
		t.Errorf("a first pause that is too long: %s", got)
	}
}

func TestASuccessBeginsThePausesAnew(t *testing.T) {
	b := Backoff{First: time.Second, Most: time.Minute}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if got := b.Next(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	b.Reset()
	if got := b.Next(); got != time.Second {
		t.Errorf("after a success: %s", got)
	}
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
		if got := b.IsNew(row.err); got != row.want {
			t.Errorf("error %d, %v: new %v", i, row.err, got)
		}
	}
	b.Reset()
	if !b.IsNew(refused) {
		t.Error("after a success the same error is not new")
	}
}
