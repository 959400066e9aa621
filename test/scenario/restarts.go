// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/machine"
)

const (
	// rollingPods is the number of pods that are replaced all the time.
	rollingPods = 6
	// controllerProgram is the name of the controller's binary in its image.
	controllerProgram = "controller"
)

// playRestarts: each part of the cluster is killed and starts again while pods come and go on every
// node.
func playRestarts(ctx context.Context, a *act) {
	a.makePool(ctx, 4*rollingPods, nil)
	node := a.victim(ctx)
	old := a.runPod(ctx, "old", node, stays)
	a.deploy(ctx, rollingPods, staying)
	a.running(ctx, rollingPods+1, everyPod)
	w := a.watch(addressOf(old))
	w.pings.waitFor(ctx, 20)
	began := time.Now()
	load := a.roll()
	a.story.Say("Pod old runs on %s. All %d pods of a Deployment are replaced again and again.", node.Name(), rollingPods)
	for _, part := range a.parts(node) {
		during(func() { a.outlive(ctx, part, node, load) }, "restart %s", part.name)
		a.story.Say("%s was killed and started again. All pods have been replaced since.", part.name)
	}
	load.end()
	a.passedAround(ctx, w, began)
}

// part is a part of the cluster that can be restarted.
type part struct {
	name string
	// ours: the node stays Ready without it.
	ours    bool
	restart func(context.Context)
}

// outlive restarts a part and waits until the load continues.
func (a *act) outlive(ctx context.Context, p part, node *cluster.Node, load *churn) {
	var ready *readiness
	if p.ours {
		ready = a.readinessOf(ctx, node)
	}
	p.restart(ctx)
	load.goesOn(ctx)
	if p.ours {
		ready.stayed(ctx)
	}
}

func (a *act) parts(node *cluster.Node) []part {
	return []part{
		{"the agent of " + node.Name(), true, func(ctx context.Context) { check(node.Kill(ctx, agentProgram)) }},
		{"the controller", true, func(ctx context.Context) { check(a.controllerNode(ctx).Kill(ctx, controllerProgram)) }},
		daemon(node, machine.Kubelet),
		daemon(node, node.Config.Runtime),
		{"the API server", false, func(ctx context.Context) {
			check(errors.Join(a.StopAPIServer(ctx), a.StartAPIServer(ctx)))
		}},
	}
}

// daemon returns a part that systemd would start again.
func daemon(node *cluster.Node, name string) part {
	return part{name + " of " + node.Name(), false, func(ctx context.Context) {
		check(errors.Join(node.Kill(ctx, name), node.StartDaemon(ctx, name)))
	}}
}

// passedAround: pod old noticed nothing. Addresses have passed from pod to pod, and each has had one
// speaker at a time.
func (a *act) passedAround(ctx context.Context, w *witness, began time.Time) {
	w.pings.waitFor(ctx, 20)
	pings := w.pings.all()
	w.pings.noneLost(began)
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
	must(reused != 0, "no address had a second holder, so nothing was shown")
	a.story.Say("Addresses passed from pod to pod %d times, and each had one speaker at a time. Pod old answered all %d pings.", reused, len(pings))
}
