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

	play func(context.Context, *act) error
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
	figures   Figures
	undo      []step
}

// step undoes one change.
type step struct {
	what string
	do   func(context.Context) error
}

// Play runs the scenario until a step fails, and then undoes all that it changed in the cluster. It returns the figures
// even if the promise was broken. After a failure it calls onFailure, unless that is nil, before the
// clean-up, so that onFailure can read the state of the cluster.
func (s Scenario) Play(ctx context.Context, stage *Stage, story *Story, onFailure func(context.Context, error)) (Figures, error) {
	a := &act{Stage: stage, scenario: s, story: story, namespace: "scenario-" + s.Name}
	started := time.Now()
	err := attempt(func() error { return s.play(ctx, a) })
	a.figures.add("the scenario took", time.Since(started))
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Name, err)
		if onFailure != nil {
			onFailure(context.WithoutCancel(ctx), err)
		}
	}
	return a.figures, errors.Join(err, a.cleanUp(ctx))
}

// failure is the panic of a step that failed.
type failure struct{ err error }

// check ends the scenario if a step has failed. A condition of eventually returns its error instead, and so
// does what runs on a goroutine of its own.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// value returns v, and ends the scenario if the step has failed: pod := value(a.runPod(...)).
func value[T any](v T, err error) T {
	check(err)
	return v
}

// attempt returns the error of a step, also of one that has ended the scenario.
func attempt(step func() error) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.err
		default:
			panic(ended)
		}
	}()
	return step()
}

// after registers a step of the clean-up. The last step runs first.
func (a *act) after(what string, do func(context.Context) error) {
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
		if err := attempt(func() error { return last.do(ctx) }); err != nil {
			errs = append(errs, fmt.Errorf("clean up after %s: %s: %w", a.scenario.Name, last.what, err))
		}
	}
	return errors.Join(errs...)
}
