package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cleanupLimit is how long a scenario may take to put the cluster back in order.
const cleanupLimit = 3 * time.Minute

// Scenario is one promise.
type Scenario struct {
	// Name is for command lines and names of tests and objects.
	Name string
	// Promise is what must be seen, in a sentence.
	Promise string

	play func(context.Context, *act) error
	// number sets the scenario's addresses apart from those of the others.
	number int
}

// act is one performance of a scenario.
type act struct {
	*Stage
	scenario Scenario
	story    *Story
	// namespace holds all objects of the performance that have one, and gives
	// the pool its name.
	namespace string
	figures   Figures
	undo      []step
}

// step puts one thing back in order.
type step struct {
	what string
	do   func(context.Context) error
}

// Play performs the scenario and puts the cluster back in order. What was
// measured is returned even when the promise was broken. onFailure, unless it is
// nil, is called before the cluster is put in order, while there is something
// to look at.
func (s Scenario) Play(ctx context.Context, stage *Stage, story *Story, onFailure func(context.Context, error)) (Figures, error) {
	a := &act{Stage: stage, scenario: s, story: story, namespace: "scenario-" + s.Name}
	started := time.Now()
	err := s.play(ctx, a)
	a.figures.add("the scenario took", time.Since(started))
	if err != nil {
		err = fmt.Errorf("%s: %w", s.Name, err)
		if onFailure != nil {
			onFailure(context.WithoutCancel(ctx), err)
		}
	}
	return a.figures, errors.Join(err, a.cleanUp(ctx))
}

// after has something put back in order at the end, last one first.
func (a *act) after(what string, do func(context.Context) error) {
	a.undo = append(a.undo, step{what, do})
}

// cleanUp puts everything back in order, also when the context has ended.
func (a *act) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	var errs []error
	for len(a.undo) > 0 {
		last := a.undo[len(a.undo)-1]
		a.undo = a.undo[:len(a.undo)-1]
		if err := last.do(ctx); err != nil {
			errs = append(errs, fmt.Errorf("clean up after %s: %s: %w", a.scenario.Name, last.what, err))
		}
	}
	return errors.Join(errs...)
}
