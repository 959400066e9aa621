// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/machine"
)

// playZombie shows that the address of a zombie serves the pod that replaces it in the Deployment, and
// that the address of a StatefulSet's zombie on the same node follows its name to another node.
func playZombie(ctx context.Context, a *act) {
	z := a.stageDeployment(ctx, func(s *v1alpha1.IPPoolSpec) {
		a.behindRouter(s)
		s.IPs = a.ips(firstHost, len(a.Nodes())+1)
	})
	named := z.stageSet(ctx)
	z.door = a.openDoor(ctx, z.pod)
	a.look(ctx)
	z.cutOff(ctx)
	named.cut = z.cut
	named.isZombie(ctx)
	a.deletePod(ctx, named.pod, true)
	a.story.Say("%s is deleted by force, so that Kubernetes starts it on another node. The old pod still runs.", named.pod.Name)
	successor := z.passes(ctx)
	next := named.passes(ctx)
	must(next.Name == named.pod.Name, "%s was the address of %s, and %s has it", named.addr, named.pod.Name, next.Name)
	a.look(ctx)
	back := time.Now()
	z.comesHome(ctx, successor)
	named.isRemoved(ctx, next, back)
}

// stageSet makes a StatefulSet with a pod on the zombie's node, which takes the last address of the pool.
func (z *zombie) stageSet(ctx context.Context) *zombie {
	z.deploySet(ctx, z.pod.Node)
	pod := podOn(z.pod.Node, z.running(ctx, 1, func(p *corev1.Pod) bool { return p.Labels["app"] == setLabel }))
	z.story.Say("Pod %s of a StatefulSet has %s, on %s.", pod.Name, addressOf(pod), pod.Node.Name())
	return z.beside(pod, 249)
}

// playDeadAgent is playZombie with kubelet and agent dead: only the kernel of the zombie's node
// runs.
func playDeadAgent(ctx context.Context, a *act) {
	z := a.stageDeployment(ctx, a.behindRouter)
	z.door = a.openDoor(ctx, z.pod)
	z.headless = true
	z.cutOff(ctx)
	successor := z.passes(ctx)
	z.show(ctx, "get", "fllease")
	z.comesHome(ctx, successor)
}

// passes judges that the address passes from the zombie to its successor, and returns this pod.
func (z *zombie) passes(ctx context.Context) *cluster.Pod {
	quarantined := z.chronicle.wait(ctx, reclaimLimit, z.addr, z.cut, "Quarantined", isQuarantined)
	z.story.Say("%s is Quarantined (%s) until its last holder is proven fenced or silent.", z.addr, quarantined.Spec.Reason)
	successor := z.successor(ctx)
	if z.door != nil {
		// This comes before the frames are judged: the zombie's frames may leave by the underlay.
		z.door.isShut(ctx, quarantined.at)
	}
	z.fencedFor(ctx, successor, z.cut)
	// With a second network, the node has lost its way to the pods of other nodes. Without an agent, its
	// route to the zombie stays.
	if z.door != nil && z.Options.SingleNIC && !z.headless {
		z.door.leadsTo(ctx, successor)
	}
	return successor
}

// behead kills kubelet, which would start the agent again, and the agent.
func (z *zombie) behead(ctx context.Context) {
	node := z.pod.Node
	z.after("start kubelet on "+node.Name(), z.restoreHead)
	for _, name := range []string{machine.Kubelet, agentProgram} {
		check(node.Kill(ctx, name))
	}
	z.story.Say("On %s, kubelet and the agent of Fenceline are killed as well. Only the kernel is left.", node.Name())
}

// agentProgram is the name of the agent's binary in its image.
const agentProgram = "agent"

// isHeadless checks that the agent has not been started again.
func (z *zombie) isHeadless() {
	if !z.headless {
		return
	}
	agents := value(z.pod.Node.Processes(agentProgram))
	must(len(agents) == 0, "the agent of %s was to be dead, and runs: %v", z.pod.Node.Name(), agents)
}

// restoreHead starts kubelet, unless it runs.
func (z *zombie) restoreHead(ctx context.Context) {
	if len(value(z.pod.Node.Processes(machine.Kubelet))) == 0 {
		check(z.pod.Node.StartDaemon(ctx, machine.Kubelet))
	}
}

// playObserve plays the same events in a pool of mode Observe, which leads to two speakers. So the
// other scenarios would have seen a second speaker.
func playObserve(ctx context.Context, a *act) {
	z := a.stageDeployment(ctx, func(s *v1alpha1.IPPoolSpec) {
		s.ConflictDetection = &v1alpha1.ConflictDetection{Mode: v1alpha1.ModeObserve}
	})
	a.story.Say("The pool is in mode Observe: Fenceline reports conflicts and fences no pod.")
	z.cutOff(ctx)
	successor := z.successor(ctx)
	since := time.Now()
	a.cry(successor)
	z.bothSpeak(ctx, successor, since)
	frames := z.capture.Frames()
	for _, kind := range []string{"claim", "ack"} {
		if sent := capture.Of(capture.About(capture.After(frames, z.cut), z.addr), kind); len(sent) > 0 {
			fail("a %s was sent in mode Observe: %s", kind, sent[0])
		}
	}
	flips := capture.Flips(capture.After(frames, since), z.addr)
	z.story.Say("The capture sees two speakers for %s, and %d MAC flips in %s. So it would have seen a second speaker in the other scenarios.",
		z.addr, flips, round(time.Since(since)))
}

// bothSpeak waits until the capture has enough frames of both holders.
func (z *zombie) bothSpeak(ctx context.Context, successor *cluster.Pod, since time.Time) {
	change := z.changeTo(successor)
	const enough = 20
	eventually(ctx, clientLimit, "two speakers", func(context.Context) {
		spoken := capture.SpokenFor(capture.After(z.capture.Frames(), since), z.addr)
		byOld, byNew := len(capture.From(spoken, change.old)), len(capture.From(spoken, change.new))
		if byOld < enough || byNew < enough {
			fail("%d frames of the zombie, %d of its successor", byOld, byNew)
		}
	})
}
