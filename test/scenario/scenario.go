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
	"github.com/fenceline/fenceline/test/cluster"
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

// All returns every scenario, in the order of the story.
func All() []Scenario {
	all := []Scenario{
		{Name: "whole", Promise: "A pod is a whole Kubernetes pod: probes, Services, DNS, its node, other nodes and the outside reach it, and it reaches them, in both families", play: playWhole},
		{Name: "steady", Promise: "Connections and pings outlive agent, kubelet and containerd, and a booted node has nothing of before", play: playSteady},
		{Name: "readme", Promise: "docs/start.md is true word for word, from its first pool to its end, on the cluster of make cluster-up", play: playReadme},
		{Name: "conflict", Promise: "An address that a foreign host uses is not given to a pod, and does not keep a pool from its deletion", play: playConflict},
		{Name: "multus", Promise: "Each interface of a pod gets its own address, from a pool that serves it", play: playMultus},
		{
			Name: "secondary", Promise: "Beside another network, interfaces on the underlay are reached, and answer, by the underlay alone, with the thin plugin of Multus",
			play: secondaryBy(cluster.Multus{Routed: true}),
		},
		{Name: "secondary-thick", Promise: "The same with the thick plugin of Multus", ByHand: true, play: secondaryBy(cluster.Multus{Routed: true, Thick: true})},
		{Name: "latecomer", Promise: "A pod defends its address against a foreign host. After the pod, no pod gets the address until that host has left, and then the next one does", play: badDay(playLatecomer)},
		{Name: "attacks", Promise: "Of a pod with NET_RAW that pretends to be somebody else, nobody hears a frame, each of them is counted under its reason, and other pods lose nothing", play: playAttacks},
		{Name: "exhausted", Promise: "Each pod gets its own address. Pods that find a pool full learn why, and get the addresses that other pods release", play: playExhausted},
		{Name: "shapes", Promise: "DaemonSets, Deployments and Jobs come through with one spare address, also in updates that start the new pod first", play: badDay(playShapes)},
		{Name: "subnets", Promise: "A Deployment, a DaemonSet and a Job get pools of their own of an IPSubnet. A rollout that starts the new pod first needs one address more, and the pools end with the applications", play: playSubnets},
		{Name: "chosen", Promise: "A Deployment of 3 keeps its 3 chosen addresses through 10 rollouts under traffic. Each of 50 pods of a StatefulSet has the address of its ordinal, also when its node is cut off and its zombie runs on", ByHand: true, play: badDay(playChosen)},
		{Name: "zombie", Promise: "The address of a pod on a cut-off node serves a new pod, that of a pod of a StatefulSet goes with its name to another node, and the zombies are silent", play: badDay(playZombie)},
		{Name: "dead-agent", Promise: "The same with the agent of the cut-off node killed", play: badDay(playDeadAgent)},
		{Name: "split", Promise: "After a split of the underlay, two owners of an address become one as soon as they hear each other", play: badDay(playSplit)},
		{Name: "flapping", Promise: "An unstable management network takes no address from a pod that stays", play: badDay(playFlapping)},
		{Name: "restarts", Promise: "While any part of the cluster restarts under load, no address is lost or has two speakers", play: badDay(playRestarts)},
		{Name: "absent", Promise: "A node without its agent stays Ready at first, and reports later what is missing. Its pods are not disturbed", play: badDay(playAbsent)},
		{Name: "lossy", Promise: "On cables that lose frames, an address still has one speaker at a time", play: badDay(playLossy)},
		{Name: "stuck", Promise: "The address of a pod that outlives its deletion serves a new pod: it is frozen, its containerd-shim hangs, or it was deleted by force. After an ordinary deletion, a pod sends no frame once its lease is gone", play: badDay(playStuck)},
		{Name: "movein", Promise: "A network of whereabouts moves in and back and in under its running pods, which lose no frame, and no address has two speakers", play: playMoveIn(fromWhereabouts)},
		{Name: "movein-wide", Promise: "The same for two networks of whereabouts, one of them dual-stack, under 30 pods and a StatefulSet, while one node is cut off and pods start and end", ByHand: true, play: playMoveWide(fromWhereabouts)},
		{Name: "movein-wide-hostlocal", Promise: "The same for two networks of host-local on one node, which is cut off before the start and on the way back", ByHand: true, play: playMoveWide(fromHostLocal)},
		{Name: "movein-wide-spiderpool", Promise: "The same for two networks of Spiderpool, by a stand-in for its plugins, agents and collector", ByHand: true, play: playMoveWide(fromSpiderpool)},
		{Name: "movein-hostlocal", Promise: "The same for a network of host-local, on nodes that get no file but for the move", ByHand: true, play: playMoveIn(fromHostLocal)},
		{Name: "movein-spiderpool", Promise: "The same for a network of Spiderpool, by the stand-in", ByHand: true, play: playMoveIn(fromSpiderpool)},
		{Name: "release", Promise: "What make release publishes is installed from its bundle, upgraded from a registry that needs a login, and taken back, and a pod in use notices nothing; fenceline.yaml alone does too, and leaves", play: playRelease},
		{Name: "uninstall", Promise: "helm refuses to uninstall Fenceline while leases exist. By force, it leaves no lease and nothing on the nodes", play: playUninstall},
	}
	for i := range all {
		all[i].number = i + 1
	}
	return all
}
