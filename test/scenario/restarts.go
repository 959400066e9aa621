// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/machine"
)

const (
	// rollingPods are replaced all the time.
	rollingPods = 6
	// controllerProgram is the name of the controller's binary in its image.
	controllerProgram = "controller"
)

// playRestarts: each part of the cluster is ended without a word and starts again
// while pods come and go on every node.
func playRestarts(ctx context.Context, a *act) error {
	check(a.makePool(ctx, 4*rollingPods, nil))
	node := value(a.victim(ctx))
	old := value(a.runPod(ctx, "old", node, func(p *corev1.Pod) {
		template := corev1.PodTemplateSpec{Spec: p.Spec}
		staying(&template)
		p.Spec = template.Spec
	}))
	check(a.deploy(ctx, rollingPods, staying))
	value(a.running(ctx, rollingPods+1, everyPod))
	w := value(a.watch(addressOf(old)))
	check(w.pings.waitFor(ctx, 20, time.Now()))
	began := time.Now()
	load := a.roll()
	a.story.Say("Pod old runs on %s. All %d pods of a Deployment are replaced again and again.", node.Name(), rollingPods)
	for _, part := range a.parts(node) {
		if err := a.outlive(ctx, part, node, load); err != nil {
			return fmt.Errorf("restart %s: %w", part.name, err)
		}
		a.story.Say("%s was killed and started again. All pods have been replaced since.", part.name)
	}
	load.end()
	a.figures.add("times that all pods were replaced", load.rolls.Load())
	return a.passedAround(ctx, w, began)
}

// part is what can be restarted.
type part struct {
	name string
	// ours: without it the node is Ready all the same.
	ours    bool
	restart func(context.Context) error
}

// outlive restarts a part and waits until the load has gone on.
func (a *act) outlive(ctx context.Context, p part, node *cluster.Node, load *churn) error {
	stayed := func(context.Context) error { return nil }
	if p.ours {
		ready := value(a.readinessOf(ctx, node))
		stayed = ready.stayed
	}
	check(p.restart(ctx))
	back := time.Now()
	check(load.goesOn(ctx))
	a.figures.add("all pods replaced once more, after the restart of "+p.name, time.Since(back))
	return stayed(ctx)
}

func (a *act) parts(node *cluster.Node) []part {
	daemon := func(name string) part {
		return part{name + " of " + node.Name(), false, func(ctx context.Context) error {
			return errors.Join(node.Kill(ctx, name), node.StartDaemon(ctx, name))
		}}
	}
	return []part{
		{"the agent of " + node.Name(), true, func(ctx context.Context) error { return node.Kill(ctx, agentProgram) }},
		{"the controller", true, func(ctx context.Context) error {
			on, err := a.controllerNode(ctx)
			if err != nil {
				return err
			}
			return on.Kill(ctx, controllerProgram)
		}},
		daemon(machine.Kubelet),
		daemon(machine.Containerd),
		{"the API server", false, func(ctx context.Context) error {
			return errors.Join(a.StopAPIServer(ctx), a.StartAPIServer(ctx))
		}},
	}
}

// passedAround: pod old did not notice, and each address has had one speaker at a
// time, though many have had it.
func (a *act) passedAround(ctx context.Context, w *witness, began time.Time) error {
	check(w.pings.waitFor(ctx, 20, time.Now()))
	pings := w.pings.all()
	if lost := lostSince(pings, began, time.Now()); lost > 0 {
		return fmt.Errorf("%d pings to pod old were lost", lost)
	}
	frames := capture.After(w.capture.Frames(), began)
	check(takeTurns(frames, a.addresses()))
	holders, reused := map[netip.Addr][]string{}, 0
	for _, f := range frames {
		for _, addr := range f.Speaks {
			if a.addresses().Contains(addr) && holders[addr] == nil {
				holders[addr] = capture.Speakers(frames, addr)
				reused += len(holders[addr]) - 1
			}
		}
	}
	if reused == 0 {
		return errors.New("no address had a second holder, so nothing was shown")
	}
	a.figures.add("times that an address passed to another pod", reused)
	a.story.Say("Addresses passed from pod to pod %d times, and each had one speaker at a time. Pod old answered all %d pings.", reused, len(pings))
	return nil
}
