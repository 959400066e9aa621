// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// losses are how many of each hundred frames the cables of the zombies lose.
var losses = []int{20, 1}

// playLossy: two nodes are cut off whose cables to the underlay lose frames. Claims,
// acks and probes are among them.
func playLossy(ctx context.Context, a *act) error {
	zombies := value(a.stageLossy(ctx))
	a.cutOffAll(ctx, zombies)
	lossy := map[*cluster.Node]int{}
	for n, z := range zombies {
		lossy[z.pod.Node] = losses[n]
		a.story.Say("On the underlay, %[2]d %% of the frames from and to %[1]s are lost.", z.pod.Node.Name(), losses[n])
	}
	a.after("join the underlay", a.JoinUnderlay)
	check(a.LoseFrames(ctx, lossy))
	for n, z := range zombies {
		if err := z.takenWithLoss(ctx, losses[n]); err != nil {
			return fmt.Errorf("with %d %% of frames lost: %w", losses[n], err)
		}
	}
	check(takeTurns(zombies[0].capture.Frames(), a.addresses()))
	a.story.Say("Each address had one speaker at a time.")
	errs := []error{a.JoinUnderlay(ctx)}
	for _, z := range zombies {
		errs = append(errs, z.pod.Node.HealManagement())
	}
	errs = append(errs, a.WaitReady(ctx), a.zombiesEnd(ctx, zombies))
	return errors.Join(append(errs, takeTurns(zombies[0].capture.Frames(), a.addresses()))...)
}

// stageLossy makes a full pool with a pod on each node. Those that are not on the
// controller's become zombies; all insist on their addresses.
func (a *act) stageLossy(ctx context.Context) ([]*zombie, error) {
	size := len(a.Nodes())
	check(a.makePool(ctx, size, nil))
	check(a.deploy(ctx, size))
	pods := value(a.running(ctx, size, everyPod))
	controller := value(a.controllerNode(ctx))
	var zombies []*zombie
	for _, node := range a.others(controller)[:len(losses)] {
		pod := value(podOn(node, pods))
		z := &zombie{act: a, pod: pod, addr: addressOf(pod)}
		z.mac = value(pod.MAC())
		z.crier = value(a.cry(pod))
		zombies = append(zombies, z)
	}
	c := value(a.keepChronicle(ctx, a.namespace))
	w := value(a.watch(zombies[0].addr, zombies[1].addr))
	for _, z := range zombies {
		z.chronicle, z.witness = c, w
	}
	return zombies, w.pings.waitFor(ctx, 20, time.Now())
}

// cutOffAll pulls the management cables of the zombies' nodes, and waits until
// Kubernetes has given these up.
func (a *act) cutOffAll(ctx context.Context, zombies []*zombie) {
	cut := time.Now()
	for _, z := range zombies {
		node := z.pod.Node
		a.after("heal the management network of "+node.Name(), func(ctx context.Context) error {
			return errors.Join(node.HealManagement(), a.WaitReady(ctx))
		})
		check(node.CutManagement())
		z.cut = cut
		a.story.Say("The management cable of %s is pulled. Pod %s runs there with %s.", node.Name(), z.pod.Name, z.addr)
	}
	for _, z := range zombies {
		check(errors.Join(z.isGivenUp(ctx), z.isZombie(ctx)))
	}
}

// takenWithLoss: the address passes to a new pod, which insists on it as its zombie
// does, and the zombie's kernel has fenced it before.
func (z *zombie) takenWithLoss(ctx context.Context, percent int) error {
	successor := value(z.successor(ctx))
	z.figures.add(fmt.Sprintf("%d %%: address with a new pod, from the cut", percent), time.Since(z.cut))
	spoke := time.Now()
	value(z.cry(successor))
	mac := value(successor.MAC())
	const enough = 100
	check(eventually(ctx, clientLimit, "the new holder to insist on the address", func(context.Context) error {
		if heard := len(capture.From(capture.SpokenFor(capture.After(z.capture.Frames(), spoke), z.addr), mac)); heard < enough {
			return fmt.Errorf("there are %d frames of %s", heard, mac)
		}
		return nil
	}))
	if !z.pod.Alive() || z.crier.refused.Load() == 0 {
		return fmt.Errorf("the zombie %s was to live on and to be refused: %d of its frames were", z.pod.Name, z.crier.refused.Load())
	}
	about := capture.About(capture.After(z.capture.Frames(), z.cut), z.addr)
	claims, acks := capture.Of(about, "claim"), capture.Of(about, "ack")
	if len(claims) == 0 || len(acks) == 0 {
		return fmt.Errorf("there are %d claims for %s and %d acks", len(claims), z.addr, len(acks))
	}
	byOld := capture.From(capture.SpokenFor(z.capture.Frames(), z.addr), z.mac)
	p := passage{claim: claims[0], ack: acks[0], last: byOld[len(byOld)-1]}
	z.figures.add(fmt.Sprintf("%d %%: first claim to its ack", percent), p.ack.Time.Sub(p.claim.Time))
	z.figures.add(fmt.Sprintf("%d %%: last frame of the zombie", percent), p.lastFrame())
	z.story.Say("%s passes to pod %s. The kernel of the zombie sent the ack %s after the first claim. The last frame of the zombie came %s.",
		z.addr, successor.Name, round(p.ack.Time.Sub(p.claim.Time)), p.lastFrame())
	return nil
}

// zombiesEnd waits until the zombies are cleaned up.
func (a *act) zombiesEnd(ctx context.Context, zombies []*zombie) error {
	return eventually(ctx, homeLimit, "the end of the zombies", func(context.Context) error {
		for _, z := range zombies {
			if z.pod.Alive() {
				return fmt.Errorf("%s is alive", z.pod.Name)
			}
		}
		return nil
	})
}
