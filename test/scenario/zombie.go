// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
	"github.com/fenceline/fenceline/test/machine"
)

const (
	// awayLimit is the time in which Kubernetes must mark a silent node as unreachable.
	awayLimit = 60 * time.Second
	// reclaimLimit is the time in which an address must then change hands: the pod's grace,
	// extraGrace, verification, and retries of the kubelet.
	reclaimLimit = 90 * time.Second
	// homeLimit is the time for a node to clean up after its return.
	homeLimit = 2 * time.Minute
)

// zombie is a pod that runs on behind a cut management cable, with the observers of its address.
type zombie struct {
	*act
	*witness
	pod       *cluster.Pod
	mac       net.HardwareAddr
	addr      netip.Addr
	chronicle *chronicle
	crier     *crier
	// door is the pod's host link, nil if it is not judged.
	door *door
	// headless is set if kubelet and agent are killed after the cable is pulled.
	headless bool
	// cut is the time at which the cable was pulled, or the pod deleted.
	cut time.Time
}

// stageDeployment makes a full pool: as many pods as addresses, one pod on each node, unless change
// changes the pool. The pod on the node that will be cut off becomes the zombie.
func (a *act) stageDeployment(ctx context.Context, change func(*v1alpha1.IPPoolSpec)) *zombie {
	size := len(a.Nodes())
	a.makePool(ctx, size, change)
	node := a.victim(ctx)
	a.deploy(ctx, size, evicted)
	pod := podOn(node, a.running(ctx, size, everyPod))
	a.story.Say("A Deployment with a pod on each node uses %d addresses of a pool. On %s, pod %s has %s.", size, node.Name(), pod.Name, addressOf(pod))
	return a.zombieOf(ctx, pod)
}

// zombieOf starts the witness, the crier and the chronicle of a pod.
func (a *act) zombieOf(ctx context.Context, pod *cluster.Pod) *zombie {
	z := a.quietZombie(pod, a.keepChronicle(ctx, a.namespace), a.watch(addressOf(pod)))
	z.crier = a.cry(pod)
	return z
}

func (a *act) quietZombie(pod *cluster.Pod, c *chronicle, w *witness) *zombie {
	return &zombie{act: a, pod: pod, mac: macOf(pod), addr: addressOf(pod), chronicle: c, witness: w}
}

// beside makes a zombie of another pod of the same pool and node, with a client and a crier of its own.
func (z *zombie) beside(pod *cluster.Pod, number int) *zombie {
	other := z.quietZombie(pod, z.chronicle, z.watchBy(fmt.Sprintf("user%d", number), number, z.capture, addressOf(pod)))
	other.crier = z.cry(pod)
	return other
}

// cutOff pulls the management cable, waits until Kubernetes has marked the node as unreachable, and
// checks that the pod still runs.
func (z *zombie) cutOff(ctx context.Context) {
	z.healLater(z.pod.Node)
	check(z.pod.Node.CutManagement())
	z.cut = time.Now()
	z.story.Say("The management cable of %s is pulled. A client on the underlay connects to %s all the time.", z.pod.Node.Name(), z.addr)
	if z.headless {
		z.behead(ctx)
	}
	z.isGivenUp(ctx)
	z.isZombie(ctx)
}

// healLater heals the management network of a node after the scenario.
func (a *act) healLater(node *cluster.Node) {
	a.after("heal the management network of "+node.Name(), func(ctx context.Context) {
		check(errors.Join(node.HealManagement(), a.WaitReady(ctx)))
	})
}

// isGivenUp waits for both taints. Pods tolerate the one with NoExecute for a while, so without the one
// with NoSchedule a new pod may come to the node.
func (z *zombie) isGivenUp(ctx context.Context) {
	node := &corev1.Node{}
	eventually(ctx, awayLimit, "node "+z.pod.Node.Name()+" to count as unreachable", func(ctx context.Context) {
		check(z.api.Get(ctx, client.ObjectKey{Name: z.pod.Node.Name()}, node))
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule} {
			if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
				return t.Key == corev1.TaintNodeUnreachable && t.Effect == effect
			}) {
				fail("its taints are %v", node.Spec.Taints)
			}
		}
	})
}

// isZombie checks that the pod runs and that its address has not been taken yet.
func (z *zombie) isZombie(ctx context.Context) {
	during(func() {
		z.answersARP(ctx, z.addr)
		name := value(greeting(ctx, z.host, z.addr))
		must(name == z.pod.Name, "pod %s answered", name)
	}, "pod %s is no zombie", z.pod.Name)
	entries, _ := z.chronicle.of(z.addr)
	if last := entries[len(entries)-1]; last.gone || last.Spec.State != v1alpha1.StateBound {
		fail("the zombie was to be checked before its address was taken: %s", last)
	}
	z.story.Say("Kubernetes marks %s as unreachable. The pod is a zombie now: it still answers ARP and TCP.", z.pod.Node.Name())
}

// successor waits until the address has a new holder that is Ready, and returns it.
func (z *zombie) successor(ctx context.Context) *cluster.Pod {
	bound := z.chronicle.wait(ctx, reclaimLimit, z.addr, z.cut, "Bound to another pod", func(e entry) bool {
		return isBoundToOther(e, z.pod.UID)
	})
	uid := bound.Spec.Holder.PodUID
	next := z.running(ctx, 1, func(p *corev1.Pod) bool { return string(p.UID) == uid })[0]
	must(next.Node.Name() != z.pod.Node.Name(), "the new holder %s is on the zombie's node", next.Name)
	return next
}

// isMute fails unless the zombie still runs and its kernel has refused frames. Otherwise its silence
// proves nothing. Nobody tells a port of a bridge that its frame was dropped.
func (z *zombie) isMute() {
	must(z.pod.Alive(), "the zombie %s has died, so its silence proves nothing", z.pod.Name)
	must(z.Options.Bridged || z.crier.refused.Load() > 0, "the kernel refused no frame of the zombie %s", z.pod.Name)
}

// ends waits until the zombie is removed.
func (z *zombie) ends(ctx context.Context) {
	eventually(ctx, homeLimit, "the end of pod "+z.pod.Name, func(context.Context) { must(!z.pod.Alive(), "it is alive") })
}

// fencedFor judges that the address has passed to the pod by a claim after since and its ack, and
// that the zombie still runs but sends no frame.
func (z *zombie) fencedFor(ctx context.Context, pod *cluster.Pod, since time.Time) {
	change := z.changeTo(pod)
	p := value(change.PassageOf(z.capture.Frames(), since))
	z.hearsOnly(ctx, pod, p.Claim.Time)
	// Judge again, with the frames that arrived while the client listened.
	p = value(change.PassageOf(z.capture.Frames(), since))
	z.isMute()
	z.tell(p, pod)
	z.isHeadless()
	z.auditedFence(ctx)
}

func (z *zombie) changeTo(pod *cluster.Pod) capture.Change {
	return capture.Change{Addr: z.addr, Old: z.mac, New: macOf(pod), OldPort: "ul-" + z.pod.Node.Name()}
}

// changeOf is the change that begins with the end of a pod.
func changeOf(pod *cluster.Pod) capture.Change {
	return capture.Change{Addr: addressOf(pod), Old: macOf(pod), OldPort: "ul-" + pod.Node.Name()}
}

// tell prints the evidence of the capture.
func (z *zombie) tell(p capture.Passage, pod *cluster.Pod) {
	z.story.Say("On the underlay: a claim from %s, and an ack from %s %s later. The last frame of the zombie came %s. Its kernel dropped %d more.",
		p.Claim.Port, p.Ack.Port, round(p.Ack.Time.Sub(p.Claim.Time)), lastFrame(p), z.crier.refused.Load())
	z.story.Say("Now only pod %[2]s on %[3]s answers for %[1]s. The client saw no MAC flip and no wrong answer.", z.addr, pod.Name, pod.Node.Name())
}

// auditedFence waits for the verdict in the audit log of a live agent.
func (z *zombie) auditedFence(ctx context.Context) {
	eventually(ctx, eventLimit, "an audit line of the fence", func(ctx context.Context) {
		for _, n := range z.others(z.pod.Node) {
			log := z.agentLog(ctx, n)
			for line := range strings.Lines(log) {
				if strings.Contains(line, "audit") && strings.Contains(line, `"fence"`) && strings.Contains(line, z.addr.String()) {
					return
				}
			}
		}
		fail("no live agent has one for %s", z.addr)
	})
}

// comesHome plugs the cable in again, and judges that the zombie is removed and its successor is not disturbed.
func (z *zombie) comesHome(ctx context.Context, successor *cluster.Pod) {
	check(z.pod.Node.HealManagement())
	z.restoreHead(ctx)
	back := time.Now()
	z.story.Say("The management cable is plugged in again.")
	z.isRemoved(ctx, successor, back)
}

// isRemoved judges that the node, whose cable was back then, removes the zombie, and that its successor
// is not disturbed.
func (z *zombie) isRemoved(ctx context.Context, successor *cluster.Pod, back time.Time) {
	z.ends(ctx)
	check(z.WaitReady(ctx))
	change := z.changeTo(successor)
	during(func() {
		z.hearsOnly(ctx, successor, back)
		check(change.OnlyNewAfter(z.capture.Frames(), back))
		z.pings.noneLost(back)
	}, "after the link was back")
	z.boundTo(ctx, z.addr, successor.UID)
	z.story.Say("The node removed the zombie after %s. The new pod lost no ping.", round(time.Since(back)))
}

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
// Only the scenario deletes the pod, since an eviction by name could hit its successor.
func (z *zombie) stageSet(ctx context.Context) *zombie {
	z.deploySet(ctx, z.pod.Node)
	pod := podOn(z.pod.Node, z.running(ctx, 1, func(p *corev1.Pod) bool { return p.Labels["app"] == setLabel }))
	z.story.Say("Pod %s of a StatefulSet has %s, on %s.", pod.Name, addressOf(pod), pod.Node.Name())
	return z.beside(pod, 249)
}

// playDeadAgent is playZombie with kubelet and agent dead: only the kernel of the zombie's node runs.
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

// bothSpeak waits until the capture has enough frames of both holders.
func (z *zombie) bothSpeak(ctx context.Context, successor *cluster.Pod, since time.Time) {
	change := z.changeTo(successor)
	const enough = 20
	eventually(ctx, clientLimit, "two speakers", func(context.Context) {
		spoken := capture.SpokenFor(capture.After(z.capture.Frames(), since), z.addr)
		byOld, byNew := len(capture.From(spoken, change.Old)), len(capture.From(spoken, change.New))
		if byOld < enough || byNew < enough {
			fail("%d frames of the zombie, %d of its successor", byOld, byNew)
		}
	})
}
