// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"slices"
	"testing"
)

func TestAScenarioEndsWithItsFirstFailedStepAndIsUndoneBackwards(t *testing.T) {
	var did []string
	broken, stuck := errors.New("broken"), errors.New("stuck")
	s := Scenario{Name: "example", play: func(_ context.Context, a *act) error {
		a.after("first", func(context.Context) error { did = append(did, "undo first"); return nil })
		a.after("second", func(context.Context) error { check(stuck); return nil })
		did = append(did, value("step", nil))
		check(broken)
		did = append(did, "a step after the failure")
		return nil
	}}
	_, err := s.Play(t.Context(), &Stage{}, &Story{}, func(_ context.Context, err error) {
		if !errors.Is(err, broken) {
			t.Errorf("the failure is reported as %v", err)
		}
		did = append(did, "dump")
	})
	if !errors.Is(err, broken) || !errors.Is(err, stuck) {
		t.Errorf("the scenario ended with %v", err)
	}
	if want := []string{"step", "dump", "undo first"}; !slices.Equal(did, want) {
		t.Errorf("%q were done, not %q", did, want)
	}
}
