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
	// cut is the time at which the cable was pulled.
	cut time.Time
}

// stageDeployment makes a full pool: as many pods as addresses, one pod on each node. The pod on the
// node that will be cut off becomes the zombie.
func (a *act) stageDeployment(ctx context.Context, change func(*v1alpha1.IPPoolSpec)) (*zombie, error) {
	size := len(a.Nodes())
	if err := a.makePool(ctx, size, change); err != nil {
		return nil, err
	}
	node, err := a.victim(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.deploy(ctx, size); err != nil {
		return nil, err
	}
	pods, err := a.running(ctx, size, everyPod)
	if err != nil {
		return nil, err
	}
	pod, err := podOn(node, pods)
	if err != nil {
		return nil, err
	}
	a.story.Say("A pool of %d addresses. A Deployment with a pod on each node uses all of them. On %s, pod %s has %s.",
		size, node.Name(), pod.Name, addressOf(pod))
	return a.zombieOf(ctx, pod)
}

// zombieOf starts the witness, the crier and the chronicle of a pod.
func (a *act) zombieOf(ctx context.Context, pod *cluster.Pod) (*zombie, error) {
	z, err := a.watchPod(ctx, pod)
	if err != nil {
		return nil, err
	}
	if z.crier, err = a.cry(pod); err != nil {
		return nil, err
	}
	return z, nil
}

// watchPod starts the witness and the chronicle of a pod.
func (a *act) watchPod(ctx context.Context, pod *cluster.Pod) (*zombie, error) {
	z := &zombie{act: a, pod: pod, addr: addressOf(pod)}
	var err error
	if z.mac, err = pod.MAC(); err != nil {
		return nil, err
	}
	if z.chronicle, err = a.keepChronicle(ctx, a.namespace); err != nil {
		return nil, err
	}
	if z.witness, err = a.watch(z.addr); err != nil {
		return nil, err
	}
	return z, nil
}

// cutOff pulls the management cable, waits until Kubernetes has marked the node as unreachable, and
// checks that the pod still runs.
func (z *zombie) cutOff(ctx context.Context) error {
	node := z.pod.Node
	z.after("heal the management network of "+node.Name(), func(ctx context.Context) error {
		return errors.Join(node.HealManagement(), z.WaitReady(ctx))
	})
	if err := node.CutManagement(); err != nil {
		return err
	}
	z.cut = time.Now()
	z.story.Say("The management cable of %s is pulled. A client on the underlay connects to %s all the time.", node.Name(), z.addr)
	if z.headless {
		if err := z.behead(ctx); err != nil {
			return err
		}
	}
	if err := z.isGivenUp(ctx); err != nil {
		return err
	}
	z.figures.add("node unreachable for Kubernetes, from the cut", time.Since(z.cut))
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
func (z *zombie) reissued(ctx context.Context) (*cluster.Pod, error) {
	successor, err := z.successor(ctx)
	if err != nil {
		return nil, err
	}
	z.figures.add("address bound to a new pod, from the cut", time.Since(z.cut))
	return successor, nil
}

// successor waits for the new holder of the address.
func (z *zombie) successor(ctx context.Context) (*cluster.Pod, error) {
	bound, err := z.chronicle.wait(ctx, reclaimLimit, z.addr, z.cut, "Bound to another pod", func(e entry) bool {
		return isBoundToOther(e, z.pod.UID)
	})
	if err != nil {
		return nil, err
	}
	uid := bound.Spec.Holder.PodUID
	pods, err := z.running(ctx, 1, func(p *corev1.Pod) bool { return string(p.UID) == uid })
	if err != nil {
		return nil, err
	}
	if pods[0].Node.Name() == z.pod.Node.Name() {
		return nil, fmt.Errorf("the new holder %s is on the zombie's node", pods[0].Name)
	}
	return pods[0], nil
}

// fencedFor judges that the address has passed to the pod by a claim after since and its ack, and
// that the zombie still runs but sends no frame.
func (z *zombie) fencedFor(ctx context.Context, pod *cluster.Pod, since time.Time) error {
	change, err := z.changeTo(pod)
	if err != nil {
		return err
	}
	p, err := change.passageOf(z.capture.Frames(), since)
	if err != nil {
		return err
	}
	if err := z.hearsOnly(ctx, pod, p.claim.Time); err != nil {
		return err
	}
	// Judge again, with the frames that arrived while the client listened.
	if p, err = change.passageOf(z.capture.Frames(), since); err != nil {
		return err
	}
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
	z.figures.add("claim to ack", p.ack.Time.Sub(p.claim.Time))
	z.figures.add("last frame of the zombie", p.lastFrame())
	z.figures.add("claim to first answer of the new pod", firstAnswered(z.pings.all(), p.claim.Time).Sub(p.claim.Time))
	z.figures.add("frames of the zombie before the claim, of the new pod after it", fmt.Sprintf("%d, %d", p.before, p.after))
	z.figures.add("frames of the zombie that its kernel dropped", z.crier.refused.Load())
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
	if err := errors.Join(node.HealManagement(), z.restoreHead(ctx)); err != nil {
		return err
	}
	back := time.Now()
	z.story.Say("The management cable is plugged in again.")
	return z.isRemoved(ctx, successor, back)
}

// isRemoved judges that the node, whose cable was back then, removes the zombie, and that its successor
// is not disturbed.
func (z *zombie) isRemoved(ctx context.Context, successor *cluster.Pod, back time.Time) error {
	err := eventually(ctx, homeLimit, "the end of the zombie "+z.pod.Name, func(context.Context) error {
		if z.pod.Alive() {
			return errors.New("it is alive")
		}
		return nil
	})
	if err != nil {
		return err
	}
	z.figures.add("zombie removed, after the cable was back", time.Since(back))
	if err := z.WaitReady(ctx); err != nil {
		return err
	}
	change, err := z.changeTo(successor)
	if err != nil {
		return err
	}
	if err := z.hearsOnly(ctx, successor, back); err != nil {
		return fmt.Errorf("after the link was back: %w", err)
	}
	if err := change.onlyNewAfter(z.capture.Frames(), back); err != nil {
		return fmt.Errorf("after the link was back: %w", err)
	}
	if lost := lostSince(z.pings.all(), back, time.Now()); lost > 0 {
		return fmt.Errorf("after the link was back, the new holder lost %d pings", lost)
	}
	if err := z.boundTo(ctx, z.addr, successor.UID); err != nil {
		return err
	}
	z.story.Say("The node removed the zombie after %s. The new pod lost no ping.", round(time.Since(back)))
	return nil
}
