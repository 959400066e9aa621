// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cleanupLimit is how long the clean-up of a scenario may take.
const cleanupLimit = 3 * time.Minute

// Scenario is one promise.
type Scenario struct {
	// Name stands on command lines and in the names of tests and objects.
	Name string
	// Promise is the sentence that the scenario shows to be true.
	Promise string
	// ByHand: test/e2e does not play the scenario.
	ByHand bool

	play func(context.Context, *act)
	// number separates the addresses of the scenario from those of other scenarios.
	number int
}

// act is one run of a scenario.
type act struct {
	*Stage
	scenario Scenario
	story    *Story
	// namespace holds all objects of the run that have one. The pool has the same name.
	namespace string
	undo      []step
}

// step undoes one change.
type step struct {
	what string
	do   func(context.Context)
}

// Play runs the scenario until a step fails, and then undoes all that it changed in the cluster. After a
// failure it calls onFailure before the clean-up, so that onFailure can read the state of the cluster.
func (s Scenario) Play(ctx context.Context, stage *Stage, story *Story, onFailure func(context.Context)) error {
	a := &act{Stage: stage, scenario: s, story: story, namespace: "scenario-" + s.Name}
	err := attempt(func() { s.play(ctx, a) })
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Name, err)
		onFailure(context.WithoutCancel(ctx))
	}
	return errors.Join(err, a.cleanUp(ctx))
}

// failure is the panic of a step that failed.
type failure struct{ err error }

// Steps return no errors: the first one that fails ends the scenario. A condition of eventually fails in the
// same way, and is tried again. Functions on a goroutine of their own, and those that judge evidence, return
// an error.

// fail ends the scenario.
func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// must ends the scenario unless the condition holds.
func must(holds bool, format string, args ...any) {
	if !holds {
		fail(format, args...)
	}
}

// check ends the scenario if a step has failed.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// did is check for an error that does not name the attempt.
func did(err error, format string, args ...any) {
	if err != nil {
		fail("%s: %w", fmt.Sprintf(format, args...), err)
	}
}

// during runs a step, and adds the text to its error.
func during(step func(), format string, args ...any) { did(attempt(step), format, args...) }

// value returns v, and ends the scenario if the step has failed: host := value(a.ForeignHost(...)).
func value[T any](v T, err error) T {
	check(err)
	return v
}

// attempt returns the error that has ended a step.
func attempt(step func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.err
		default:
			panic(ended)
		}
	}()
	step()
	return nil
}

// after registers a step of the clean-up. The last step runs first.
func (a *act) after(what string, do func(context.Context)) {
	a.undo = append(a.undo, step{what, do})
}

// cleanUp runs all steps, also after the context has ended.
func (a *act) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	var errs []error
	for len(a.undo) > 0 {
		last := a.undo[len(a.undo)-1]
		a.undo = a.undo[:len(a.undo)-1]
		if err := attempt(func() { last.do(ctx) }); err != nil {
			errs = append(errs, fmt.Errorf("clean up after %s: %s: %w", a.scenario.Name, last.what, err))
		}
	}
	return errors.Join(errs...)
}
