// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// losses are the percentages of frames that the cables of the zombies lose.
var losses = []int{20, 1}

// playLossy: two nodes are cut off, and their cables to the underlay lose frames, such as claims, acks and probes.
func playLossy(ctx context.Context, a *act) {
	zombies := a.stageLossy(ctx)
	a.cutOffAll(ctx, zombies)
	lossy := map[*cluster.Node]int{}
	for n, z := range zombies {
		lossy[z.pod.Node] = losses[n]
		a.story.Say("On the underlay, %[2]d %% of the frames from and to %[1]s are lost.", z.pod.Node.Name(), losses[n])
	}
	a.joinLater()
	check(a.LoseFrames(ctx, lossy))
	for n, z := range zombies {
		during(func() { z.takenWithLoss(ctx) }, "with %d %% of frames lost", losses[n])
	}
	check(takeTurns(zombies[0].capture.Frames(), a.addresses()))
	a.story.Say("Each address had one speaker at a time.")
	check(a.JoinUnderlay(ctx))
	for _, z := range zombies {
		check(z.pod.Node.HealManagement())
	}
	check(a.WaitReady(ctx))
	for _, z := range zombies {
		z.ends(ctx)
	}
	check(takeTurns(zombies[0].capture.Frames(), a.addresses()))
}

// joinLater joins the underlay after the scenario.
func (a *act) joinLater() {
	a.after("join the underlay", func(ctx context.Context) { check(a.JoinUnderlay(ctx)) })
}

// stageLossy makes a full pool with a pod on each node. Pods that are not on the controller's node
// become zombies, and announce their addresses all the time.
func (a *act) stageLossy(ctx context.Context) []*zombie {
	size := len(a.Nodes())
	a.makePool(ctx, size, nil)
	a.deploy(ctx, size)
	pods := a.running(ctx, size, everyPod)
	nodes := a.others(a.controllerNode(ctx))
	pods = []*cluster.Pod{podOn(nodes[0], pods), podOn(nodes[1], pods)}
	c, w := a.keepChronicle(ctx, a.namespace), a.watch(addressOf(pods[0]), addressOf(pods[1]))
	var zombies []*zombie
	for _, pod := range pods {
		z := a.quietZombie(pod, c, w)
		z.crier = a.cry(pod)
		zombies = append(zombies, z)
	}
	w.pings.waitFor(ctx, 20)
	return zombies
}

// cutOffAll pulls the management cables of the zombies' nodes, and waits until Kubernetes has given up the nodes.
func (a *act) cutOffAll(ctx context.Context, zombies []*zombie) {
	cut := time.Now()
	for _, z := range zombies {
		node := z.pod.Node
		a.healLater(node)
		check(node.CutManagement())
		z.cut = cut
		a.story.Say("The management cable of %s is pulled. Pod %s runs there with %s.", node.Name(), z.pod.Name, z.addr)
	}
	for _, z := range zombies {
		z.isGivenUp(ctx)
		z.isZombie(ctx)
	}
}

// takenWithLoss: the zombie's kernel has fenced it, and then the address has passed to a new pod.
// Both announce the address all the time.
func (z *zombie) takenWithLoss(ctx context.Context) {
	successor := z.successor(ctx)
	spoke := time.Now()
	z.cry(successor)
	mac := macOf(successor)
	const enough = 100
	eventually(ctx, clientLimit, "the new holder to insist on the address", func(context.Context) {
		heard := capture.From(capture.SpokenFor(capture.After(z.capture.Frames(), spoke), z.addr), mac)
		must(len(heard) >= enough, "there are %d frames of %s", len(heard), mac)
	})
	z.isMute()
	about := capture.About(capture.After(z.capture.Frames(), z.cut), z.addr)
	claims, acks := capture.Of(about, "claim"), capture.Of(about, "ack")
	must(len(claims) > 0 && len(acks) > 0, "there are %d claims for %s and %d acks", len(claims), z.addr, len(acks))
	z.story.Say("%s passes to pod %s. The kernel of the zombie sent the ack %s after the first claim.",
		z.addr, successor.Name, round(acks[0].Time.Sub(claims[0].Time)))
}
