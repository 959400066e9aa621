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
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// awayLimit is how long Kubernetes may take to mark a silent node as unreachable.
	awayLimit = 60 * time.Second
	// reclaimLimit is how long an address may then take to change hands: the
	// pod's grace, extraGrace, verification, and retries of kubelet.
	reclaimLimit = 90 * time.Second
	// homeLimit is how long a node may take to clean up when it is back.
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
	// label begins the figures of one zombie of several.
	label string
}

// measure adds a figure.
func (z *zombie) measure(name string, value any) { z.figures.add(z.label+name, value) }

// stageDeployment makes a full pool: as many pods as addresses, one pod on each node, unless change
// changes the pool. The pod on the node that will be cut off becomes the zombie.
func (a *act) stageDeployment(ctx context.Context, change func(*v1alpha1.IPPoolSpec)) *zombie {
	size := len(a.Nodes())
	check(a.makePool(ctx, size, change))
	node := value(a.victim(ctx))
	check(a.deploy(ctx, size))
	pods := value(a.running(ctx, size, everyPod))
	pod := value(podOn(node, pods))
	a.story.Say("A Deployment with a pod on each node uses %d addresses of a pool. On %s, pod %s has %s.", size, node.Name(), pod.Name, addressOf(pod))
	return a.zombieOf(ctx, pod)
}

// zombieOf starts the witness, the crier and the chronicle of a pod.
func (a *act) zombieOf(ctx context.Context, pod *cluster.Pod) *zombie {
	z := value(a.watchPod(ctx, pod))
	z.crier = value(a.cry(pod))
	return z
}

// beside makes a zombie of another pod of the same pool and node, with a client and a crier of its own.
func (z *zombie) beside(pod *cluster.Pod, number int) *zombie {
	other := &zombie{act: z.act, pod: pod, addr: addressOf(pod), chronicle: z.chronicle, label: pod.Name + ": "}
	other.mac = value(pod.MAC())
	other.witness = value(z.watchBy(fmt.Sprintf("user%d", number), number, z.capture, other.addr))
	other.crier = value(z.cry(pod))
	return other
}

// watchPod starts the witness and the chronicle of a pod.
func (a *act) watchPod(ctx context.Context, pod *cluster.Pod) (*zombie, error) {
	z := &zombie{act: a, pod: pod, addr: addressOf(pod)}
	z.mac = value(pod.MAC())
	z.chronicle = value(a.keepChronicle(ctx, a.namespace))
	var err error
	z.witness, err = a.watch(z.addr)
	return z, err
}

// cutOff pulls the management cable, waits until Kubernetes has marked the node as unreachable, and
// checks that the pod still runs.
func (z *zombie) cutOff(ctx context.Context) error {
	node := z.pod.Node
	z.after("heal the management network of "+node.Name(), func(ctx context.Context) error {
		return errors.Join(node.HealManagement(), z.WaitReady(ctx))
	})
	check(node.CutManagement())
	z.cut = time.Now()
	z.story.Say("The management cable of %s is pulled. A client on the underlay connects to %s all the time.", node.Name(), z.addr)
	if z.headless {
		z.behead(ctx)
	}
	check(z.isGivenUp(ctx))
	z.measure("node unreachable for Kubernetes, from the cut", time.Since(z.cut))
	return z.isZombie(ctx)
}

// isGivenUp waits for both taints. Pods tolerate the one with NoExecute for a while, so without the one
// with NoSchedule a new pod may come to the node.
func (z *zombie) isGivenUp(ctx context.Context) error {
	node := &corev1.Node{}
	return eventually(ctx, awayLimit, "node "+z.pod.Node.Name()+" to count as unreachable", func(ctx context.Context) error {
		if err := z.api.Get(ctx, client.ObjectKey{Name: z.pod.Node.Name()}, node); err != nil {
			return err
		}
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule} {
			if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
				return t.Key == corev1.TaintNodeUnreachable && t.Effect == effect
			}) {
				return fmt.Errorf("its taints are %v", node.Spec.Taints)
			}
		}
		return nil
	})
}

// isZombie checks that the pod runs and that its address has not been taken yet.
func (z *zombie) isZombie(ctx context.Context) error {
	if err := z.alive(ctx, z.pod); err != nil {
		return fmt.Errorf("pod %s is no zombie: %w", z.pod.Name, err)
	}
	entries, _ := z.chronicle.of(z.addr)
	if last := entries[len(entries)-1]; last.gone || last.Spec.State != v1alpha1.StateBound {
		return fmt.Errorf("the zombie was to be checked before its address was taken: %s", last)
	}
	z.story.Say("Kubernetes marks %s as unreachable. The pod is a zombie now: it still answers ARP and TCP.", z.pod.Node.Name())
	return nil
}

// reissued waits until the address has a new holder that is Ready, and returns it.
func (z *zombie) reissued(ctx context.Context) *cluster.Pod {
	successor := value(z.successor(ctx))
	z.measure("address bound to a new pod, from the cut", time.Since(z.cut))
	return successor
}

// successor waits for the new holder of the address.
func (z *zombie) successor(ctx context.Context) (*cluster.Pod, error) {
	bound := value(z.chronicle.wait(ctx, reclaimLimit, z.addr, z.cut, "Bound to another pod", func(e entry) bool {
		return isBoundToOther(e, z.pod.UID)
	}))
	uid := bound.Spec.Holder.PodUID
	pods := value(z.running(ctx, 1, func(p *corev1.Pod) bool { return string(p.UID) == uid }))
	if pods[0].Node.Name() == z.pod.Node.Name() {
		return nil, fmt.Errorf("the new holder %s is on the zombie's node", pods[0].Name)
	}
	return pods[0], nil
}

// fencedFor judges that the address has passed to the pod by a claim after since and its ack, and
// that the zombie still runs but sends no frame.
func (z *zombie) fencedFor(ctx context.Context, pod *cluster.Pod, since time.Time) error {
	change := value(z.changeTo(pod))
	p := value(change.passageOf(z.capture.Frames(), since))
	check(z.hearsOnly(ctx, pod, p.claim.Time))
	// Judge again, with the frames that arrived while the client listened.
	p = value(change.passageOf(z.capture.Frames(), since))
	if !z.pod.Alive() {
		return fmt.Errorf("the zombie %s has died, so its silence proves nothing", z.pod.Name)
	}
	if z.crier.refused.Load() == 0 {
		return fmt.Errorf("the kernel refused no frame of the zombie %s", z.pod.Name)
	}
	z.tell(p, pod)
	return errors.Join(z.isHeadless(), z.auditedFence(ctx))
}

func (z *zombie) changeTo(pod *cluster.Pod) (change, error) {
	mac, err := pod.MAC()
	return change{addr: z.addr, old: z.mac, new: mac, oldPort: "ul-" + z.pod.Node.Name()}, err
}

// tell prints what the capture has shown, and adds the figures.
func (z *zombie) tell(p passage, pod *cluster.Pod) {
	z.measure("claim to ack", p.ack.Time.Sub(p.claim.Time))
	z.measure("last frame of the zombie", p.lastFrame())
	z.measure("claim to first answer of the new pod", firstAnswered(z.pings.all(), p.claim.Time).Sub(p.claim.Time))
	z.measure("frames of the zombie before the claim, of the new pod after it", fmt.Sprintf("%d, %d", p.before, p.after))
	z.measure("frames of the zombie that its kernel dropped", z.crier.refused.Load())
	z.story.Say("On the underlay: a claim from %s, and an ack from %s %s later. The last frame of the zombie came %s. Its kernel dropped %d more.",
		p.claim.Port, p.ack.Port, round(p.ack.Time.Sub(p.claim.Time)), p.lastFrame(), z.crier.refused.Load())
	z.story.Say("Now only pod %[2]s on %[3]s answers for %[1]s. The client saw no MAC flip and no wrong answer.", z.addr, pod.Name, pod.Node.Name())
}

// auditedFence looks for the verdict in the audit log of the live agents.
func (z *zombie) auditedFence(ctx context.Context) error {
	return eventually(ctx, eventLimit, "an audit line of the fence", func(ctx context.Context) error {
		for _, n := range z.others(z.pod.Node) {
			log, err := z.agentLog(ctx, n)
			if err != nil {
				return err
			}
			for line := range strings.Lines(log) {
				if strings.Contains(line, "audit") && strings.Contains(line, `"fence"`) && strings.Contains(line, z.addr.String()) {
					return nil
				}
			}
		}
		return fmt.Errorf("no live agent has one for %s", z.addr)
	})
}

// comesHome plugs the cable in again, and judges that the zombie is removed and its successor is not
// disturbed.
func (z *zombie) comesHome(ctx context.Context, successor *cluster.Pod) error {
	node := z.pod.Node
	check(errors.Join(node.HealManagement(), z.restoreHead(ctx)))
	back := time.Now()
	z.story.Say("The management cable is plugged in again.")
	return z.isRemoved(ctx, successor, back)
}

// isRemoved judges that the node, whose cable was back then, removes the zombie, and that its successor
// is not disturbed.
func (z *zombie) isRemoved(ctx context.Context, successor *cluster.Pod, back time.Time) error {
	check(eventually(ctx, homeLimit, "the end of the zombie "+z.pod.Name, func(context.Context) error {
		if z.pod.Alive() {
			return errors.New("it is alive")
		}
		return nil
	}))
	z.measure("zombie removed, after the cable was back", time.Since(back))
	check(z.WaitReady(ctx))
	change := value(z.changeTo(successor))
	if err := z.hearsOnly(ctx, successor, back); err != nil {
		return fmt.Errorf("after the link was back: %w", err)
	}
	if err := change.onlyNewAfter(z.capture.Frames(), back); err != nil {
		return fmt.Errorf("after the link was back: %w", err)
	}
	if lost := lostSince(z.pings.all(), back, time.Now()); lost > 0 {
		return fmt.Errorf("after the link was back, the new holder lost %d pings", lost)
	}
	check(z.boundTo(ctx, z.addr, successor.UID))
	z.story.Say("The node removed the zombie after %s. The new pod lost no ping.", round(time.Since(back)))
	return nil
}
