// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// A cable that is loose.
	flaps    = 5
	flapDown = 1500 * time.Millisecond
	flapUp   = time.Second
)

// flapping is a node whose management network comes and goes.
type flapping struct {
	*act
	*witness
	node      *cluster.Node
	chronicle *chronicle
	// patient are the pods of a Deployment that Kubernetes leaves on the node, with the leases of
	// their addresses. loyal is a StatefulSet's pod there, which Kubernetes gives up.
	patient []*cluster.Pod
	leases  map[netip.Addr]types.UID
	loyal   *cluster.Pod
}

// playFlapping: the management cable of a node is out until the address of one pod, which Kubernetes
// gives up, is taken. Then the cable is loose. The other pods keep their addresses and notice
// nothing. The first one is fenced, and its successor has its address.
func playFlapping(ctx context.Context, a *act) {
	f := a.stageFlapping(ctx)
	began := time.Now()
	a.healLater(f.node)
	check(f.node.CutManagement())
	f.chronicle.wait(ctx, awayLimit+reclaimLimit, addressOf(f.loyal), began, "Quarantined", isQuarantined)
	check(f.node.HealManagement())
	a.story.Say("The management cable of %s was unplugged for %s, until the address of pod %s was taken.", f.node.Name(), round(time.Since(began)), f.loyal.Name)
	for range flaps {
		a.lasts(ctx, flapUp)
		check(f.node.CutManagement())
		a.lasts(ctx, flapDown)
		check(f.node.HealManagement())
	}
	a.story.Say("Then it was unplugged %d times for %s.", flaps, flapDown)
	check(a.WaitReady(ctx))
	f.comesBackItself(ctx)
	f.noticedNothing(ctx, began)
}

// stageFlapping makes the pods, two of the Deployment on each node, and a client of these pods.
func (a *act) stageFlapping(ctx context.Context) *flapping {
	size := 2 * len(a.Nodes())
	a.makePool(ctx, 2*size, nil)
	f := &flapping{act: a, leases: map[netip.Addr]types.UID{}}
	f.node = a.victim(ctx)
	a.deploy(ctx, size)
	a.deploySet(ctx, f.node, evicted)
	f.patient = a.running(ctx, size+1, everyPod)
	isLoyal := func(p *cluster.Pod) bool { return p.Name == workload+"-0" }
	f.loyal = f.patient[slices.IndexFunc(f.patient, isLoyal)]
	f.patient = slices.DeleteFunc(f.patient, isLoyal)
	var addrs []netip.Addr
	for _, p := range f.patient {
		f.leases[addressOf(p)] = a.lease(ctx, addressOf(p)).UID
		addrs = append(addrs, addressOf(p))
	}
	must(f.loyal.Node.Name() == f.node.Name(), "pod %s is on %s, not on %s", f.loyal.Name, f.loyal.Node.Name(), f.node.Name())
	f.chronicle = a.keepChronicle(ctx, a.namespace)
	f.witness = a.watch(addrs...)
	a.cry(f.loyal)
	a.story.Say("%d pods of a Deployment tolerate an unreachable node. Pod %s of a StatefulSet on %s does not. Clients use all of them.", size, f.loyal.Name, f.node.Name())
	f.pings.waitFor(ctx, 20*len(addrs))
	return f
}

// lasts waits for the length of a fault, or of the time between two faults.
func (a *act) lasts(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
		check(ctx.Err())
	case <-time.After(d):
	}
}

// comesBackItself: the successor has the name and the address of the pod that was given up.
func (f *flapping) comesBackItself(ctx context.Context) {
	addr := addressOf(f.loyal)
	successor := f.running(ctx, 1, func(p *corev1.Pod) bool { return p.Name == f.loyal.Name && string(p.UID) != f.loyal.UID })[0]
	must(addressOf(successor) == addr, "pod %s had %s, and comes back with %s", f.loyal.Name, addr, addressOf(successor))
	f.story.Say("Kubernetes deleted pod %s, its old container was fenced, and the new one has %s.", f.loyal.Name, addr)
}

// noticedNothing: the other pods have the leases of before and lost no ping, and each address had one speaker.
func (f *flapping) noticedNothing(ctx context.Context, began time.Time) {
	f.running(ctx, len(f.patient)+1, everyPod)
	for _, p := range f.patient {
		f.boundTo(ctx, addressOf(p), p.UID)
		must(f.lease(ctx, addressOf(p)).UID == f.leases[addressOf(p)], "the lease of %s was lost and made again", addressOf(p))
	}
	f.pings.waitFor(ctx, 20*len(f.patient))
	f.pings.noneLost(began)
	pings := f.pings.all()
	f.story.Say("The other pods have the same leases as before, and answered all %d pings.", len(pings))
	check(takeTurns(f.capture.Frames(), f.addresses()))
}

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
	a.deploy(ctx, size, evicted)
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
