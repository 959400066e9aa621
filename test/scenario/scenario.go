// SPDX-License-Identifier: Apache-2.0

// Package scenario plays the promises of Fenceline on a real cluster. Each scenario is one promise. It sets its
// stage, causes the damage, and judges the frames captured on the underlay and the answers that a client got. Then
// it restores the cluster. The demo and the end-to-end tests play the same scenarios.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/fenceline/fenceline/test/await"
	steps "github.com/fenceline/fenceline/test/must"
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

// Steps return no errors: the first one that fails ends the scenario. A condition of eventually fails in the same
// way, and is tried again. Functions on a goroutine of their own, and those that judge evidence, return an error.

// fail ends the scenario.
func fail(format string, args ...any) { panic(steps.Failure(format, args...)) }

// must ends the scenario unless the condition holds.
func must(holds bool, format string, args ...any) { steps.That(holds, format, args...) }

// check ends the scenario if a step has failed.
func check(err error) { steps.OK(err) }

// did is check for an error that does not name the attempt.
func did(err error, format string, args ...any) { steps.Done(err, format, args...) }

// during runs a step, and adds the text to its error.
func during(step func(), format string, args ...any) { steps.Done(steps.Try(step), format, args...) }

// value returns v, and ends the scenario if the step has failed: host := value(a.ForeignHost(...)).
func value[T any](v T, err error) T { return steps.Value(v, err) }

// attempt returns the error that has ended a step.
func attempt(step func()) error { return steps.Try(step) }

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

// eventually polls until the condition holds. Until then, the condition fails with its observation.
// After limit, eventually fails with the last of these errors.
func eventually(ctx context.Context, limit time.Duration, what string, condition func(context.Context)) {
	check(await.Until(ctx, limit, what, func(ctx context.Context) error { return attempt(func() { condition(ctx) }) }))
}

// Story prints what happens, while it happens. The zero value prints nothing. Safe for concurrent use.
type Story struct {
	mu      sync.Mutex
	out     io.Writer
	started time.Time
}

// NewStory returns a story that prints to out, with times from now on.
func NewStory(out io.Writer) *Story { return &Story{out: out, started: time.Now()} }

// Say prints one sentence with the time.
func (s *Story) Say(format string, args ...any) {
	s.write(fmt.Sprintf("%s  %s\n", s.clock(), fmt.Sprintf(format, args...)))
}

// Show prints a command and its output.
func (s *Story) Show(command, output string) {
	var b strings.Builder
	fmt.Fprintf(&b, "        $ %s\n", command)
	for line := range strings.Lines(strings.TrimRight(output, "\n") + "\n") {
		b.WriteString("        " + line)
	}
	s.write(b.String())
}

// clock returns the minutes and seconds since the start.
func (s *Story) clock() string {
	seconds := int(time.Since(s.started).Seconds())
	return fmt.Sprintf(" %2d:%02d", seconds/60, seconds%60)
}

func (s *Story) write(text string) {
	if s.out == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, text) // a scenario does not fail because its story cannot be printed
}

// round rounds a duration to what a reader can use.
func round(d time.Duration) time.Duration {
	switch magnitude := d.Abs(); {
	case magnitude >= 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case magnitude >= 100*time.Millisecond:
		return d.Round(10 * time.Millisecond)
	case magnitude >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
