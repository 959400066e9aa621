// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/machine"
)

// playZombie shows that the address of a zombie serves the pod that replaces it in the Deployment.
func playZombie(ctx context.Context, a *act) error {
	z, err := a.stageDeployment(ctx, a.behindRouter)
	if err != nil {
		return err
	}
	if z.door, err = a.openDoor(ctx, z.pod); err != nil {
		return err
	}
	if err := z.cutOff(ctx); err != nil {
		return err
	}
	return z.passesOn(ctx)
}

// playDeadAgent shows the same while only the kernel runs on the zombie's node: kubelet and agent are
// dead.
func playDeadAgent(ctx context.Context, a *act) error {
	z, err := a.stageDeployment(ctx, a.behindRouter)
	if err != nil {
		return err
	}
	if z.door, err = a.openDoor(ctx, z.pod); err != nil {
		return err
	}
	z.headless = true
	if err := z.cutOff(ctx); err != nil {
		return err
	}
	return z.passesOn(ctx)
}

// playStatefulSet shows that the address of a zombie follows its name to another node.
func playStatefulSet(ctx context.Context, a *act) error {
	if err := a.makePool(ctx, len(a.Nodes()), nil); err != nil {
		return err
	}
	node, err := a.victim(ctx)
	if err != nil {
		return err
	}
	if err := a.deploySet(ctx, node); err != nil {
		return err
	}
	pods, err := a.running(ctx, 1, everyPod)
	if err != nil {
		return err
	}
	pod, err := podOn(node, pods)
	if err != nil {
		return err
	}
	a.story.Say("Pod %s of a StatefulSet has %s, on %s.", pod.Name, addressOf(pod), node.Name())
	z, err := a.zombieOf(ctx, pod)
	if err != nil {
		return err
	}
	if err := z.cutOff(ctx); err != nil {
		return err
	}
	if err := z.deletePod(ctx, pod, true); err != nil {
		return err
	}
	z.story.Say("%s is deleted by force, so that Kubernetes starts it on another node. The old pod still runs.", pod.Name)
	return z.passesOn(ctx)
}

// passesOn judges that the address passes from the zombie to its successor, and that the zombie is
// removed when its node is back.
func (z *zombie) passesOn(ctx context.Context) error {
	successor, err := z.passes(ctx)
	if err != nil {
		return err
	}
	if err := z.show(ctx, "get", "fllease"); err != nil {
		return err
	}
	return z.comesHome(ctx, successor)
}

// passes judges that the address passes from the zombie to its successor, and returns this pod.
func (z *zombie) passes(ctx context.Context) (*cluster.Pod, error) {
	quarantined, err := z.chronicle.wait(ctx, reclaimLimit, z.addr, z.cut, "Quarantined", isQuarantined)
	if err != nil {
		return nil, err
	}
	z.figures.add("address quarantined, from the cut", quarantined.at.Sub(z.cut))
	z.story.Say("%s is Quarantined (%s) until its last holder is proven fenced or silent.", z.addr, quarantined.Spec.Reason)
	successor, err := z.reissued(ctx)
	if err != nil {
		return nil, err
	}
	if z.door != nil {
		// Before the frames are judged: what the zombie tries by its door may come out of the underlay.
		if err := z.door.isShut(ctx, quarantined.at); err != nil {
			return nil, err
		}
	}
	if err := z.fencedFor(ctx, successor, z.cut); err != nil {
		return nil, err
	}
	// With a second network, the node has lost its way to the pods of other nodes. Without an agent, its
	// route to the zombie stays.
	if z.door != nil && z.Options.SingleNIC && !z.headless {
		if err := z.door.leadsTo(ctx, successor); err != nil {
			return nil, err
		}
	}
	return successor, nil
}

// behead kills kubelet, which would start the agent again, and the agent.
func (z *zombie) behead(ctx context.Context) error {
	node := z.pod.Node
	z.after("start kubelet on "+node.Name(), func(ctx context.Context) error { return z.restoreHead(ctx) })
	for _, name := range []string{machine.Kubelet, agentProgram} {
		if err := node.Kill(ctx, name); err != nil {
			return err
		}
	}
	z.story.Say("On %s, kubelet and the agent of Fenceline are killed as well. Only the kernel is left.", node.Name())
	return nil
}

// agentProgram is the name of the agent's binary in its image.
const agentProgram = "agent"

// isHeadless checks that the agent has not been started again.
func (z *zombie) isHeadless() error {
	if !z.headless {
		return nil
	}
	agents, err := z.pod.Node.Processes(agentProgram)
	if err != nil {
		return err
	}
	if len(agents) > 0 {
		return fmt.Errorf("the agent of %s was to be dead, and runs: %v", z.pod.Node.Name(), agents)
	}
	return nil
}

// restoreHead starts kubelet, unless it runs.
func (z *zombie) restoreHead(ctx context.Context) error {
	kubelets, err := z.pod.Node.Processes(machine.Kubelet)
	if err != nil || len(kubelets) > 0 {
		return err
	}
	return z.pod.Node.StartDaemon(ctx, machine.Kubelet)
}

// playObserve shows that the same events in a pool of mode Observe lead to two speakers. So the other
// scenarios would have seen a second speaker.
func playObserve(ctx context.Context, a *act) error {
	z, err := a.stageDeployment(ctx, func(s *v1alpha1.IPPoolSpec) {
		s.ConflictDetection = &v1alpha1.ConflictDetection{Mode: v1alpha1.ModeObserve}
	})
	if err != nil {
		return err
	}
	a.story.Say("The pool is in mode Observe: Fenceline reports conflicts and fences no pod.")
	if err := z.cutOff(ctx); err != nil {
		return err
	}
	successor, err := z.reissued(ctx)
	if err != nil {
		return err
	}
	since := time.Now()
	if _, err := a.cry(successor); err != nil {
		return err
	}
	if err := z.bothSpeak(ctx, successor, since); err != nil {
		return err
	}
	frames := z.capture.Frames()
	for _, kind := range []string{"claim", "ack"} {
		if sent := capture.Of(capture.About(capture.After(frames, z.cut), z.addr), kind); len(sent) > 0 {
			return fmt.Errorf("a %s was sent in mode Observe: %s", kind, sent[0])
		}
	}
	flips := capture.Flips(capture.After(frames, since), z.addr)
	z.figures.add("MAC flips", fmt.Sprintf("%d in %s", flips, round(time.Since(since))))
	z.story.Say("The capture sees two speakers for %s, and %d MAC flips in %s. So it would have seen a second speaker in the other scenarios.",
		z.addr, flips, round(time.Since(since)))
	return nil
}

// bothSpeak waits until the capture has enough frames of both holders.
func (z *zombie) bothSpeak(ctx context.Context, successor *cluster.Pod, since time.Time) error {
	change, err := z.changeTo(successor)
	if err != nil {
		return err
	}
	const enough = 20
	return eventually(ctx, clientLimit, "two speakers", func(context.Context) error {
		spoken := capture.SpokenFor(capture.After(z.capture.Frames(), since), z.addr)
		byOld, byNew := len(capture.From(spoken, change.old)), len(capture.From(spoken, change.new))
		if byOld < enough || byNew < enough {
			return fmt.Errorf("%d frames of the zombie, %d of its successor", byOld, byNew)
		}
		return nil
	})
}
