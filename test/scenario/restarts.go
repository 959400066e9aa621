// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// playRestarts: each part of the cluster is killed and starts again while pods come and go on every node.
func playRestarts(ctx context.Context, a *act) {
	a.makePool(ctx, 4*rollingPods, nil)
	node := a.victim(ctx)
	old := a.runPod(ctx, "old", node, nil)
	a.deploy(ctx, rollingPods)
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

// rollLimit is the time in which a Deployment must replace its pods while a part of the cluster restarts.
const rollLimit = 2 * time.Minute

// churn replaces all pods of the Deployment, again and again.
type churn struct {
	*act
	stop context.CancelFunc
	done chan struct{}
	// rolls counts how often all pods have been replaced.
	rolls atomic.Int64
}

// roll begins to replace the pods of the Deployment, until it is told to stop.
func (a *act) roll() *churn {
	ctx, stop := context.WithCancel(context.Background())
	c := &churn{act: a, stop: stop, done: make(chan struct{})}
	go c.run(ctx)
	a.after("stop the churn", func(context.Context) { c.end() })
	return c
}

// end stops the churn and waits until its last roll has ended or was given up.
func (c *churn) end() { c.stop(); <-c.done }

// run continues after a failed roll, because the API server is away now and then.
func (c *churn) run(ctx context.Context) {
	defer close(c.done)
	for n := 1; ctx.Err() == nil; n++ {
		err := attempt(func() {
			eventually(ctx, rollLimit, "a roll to begin", func(ctx context.Context) { c.rollOut(ctx, c.deployment(), n) })
			eventually(ctx, rollLimit, "a roll to end", func(ctx context.Context) { c.rolledOut(ctx, client.ObjectKeyFromObject(c.deployment())) })
		})
		if err == nil {
			c.rolls.Add(1)
		}
	}
}

// goesOn waits until a roll that began after this call has replaced all pods.
func (c *churn) goesOn(ctx context.Context) {
	before := c.rolls.Load()
	eventually(ctx, rollLimit, "all pods to be replaced", func(ctx context.Context) {
		const whole = 2 // the first to end had begun earlier
		if done := c.rolls.Load() - before; done < whole {
			fail("%d of %d rolls have ended, there are %s", done, whole, names(c.pods(ctx)))
		}
	})
}

// controllers is the controllers' Deployment without its contents. Their leader's Lease has the same name.
func controllers() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.FencelineNamespace, Name: "fenceline-controller"}}
}

func (a *act) controllersAreOut(ctx context.Context) {
	eventually(ctx, rollLimit, "the controllers to be rolled out", func(ctx context.Context) {
		a.rolledOut(ctx, client.ObjectKeyFromObject(controllers()))
	})
}

// addController runs two controllers until the end of the scenario.
func (a *act) addController(ctx context.Context) {
	a.after("run one controller", func(ctx context.Context) { a.runControllers(ctx, 1) })
	a.runControllers(ctx, 2)
}

func (a *act) runControllers(ctx context.Context, count int) {
	a.patch(ctx, controllers(), `{"spec":{"replicas":%d}}`, count)
	a.controllersAreOut(ctx)
}

// leader returns the name of the leading controller.
func (a *act) leader(ctx context.Context) string {
	lease := &coordinationv1.Lease{}
	check(a.api.Get(ctx, client.ObjectKeyFromObject(controllers()), lease))
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
