// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

const (
	// servedLimit is how long an address may be out of service once its lost pod is due: a
	// verification, and the next try of kubelet, which backs off.
	servedLimit = 15 * time.Second
	// firstNeighbour is the first address of the neighbours' pool.
	firstNeighbour = 100
)

// playOwnPool shows that a pool of one address outlives the power of its pod's node. Nothing names a
// parent, and no other node has a pod of the pool. But the other nodes have heard the lost pod on the
// parent of their own pods.
func playOwnPool(ctx context.Context, a *act) error {
	node, err := a.victim(ctx)
	if err != nil {
		return err
	}
	if err := a.makePool(ctx, 1, nil); err != nil {
		return err
	}
	neighbours, err := a.stageNeighbours(ctx, a.others(node))
	if err != nil {
		return err
	}
	if err := a.deploy(ctx, 1, prefer(node)); err != nil {
		return err
	}
	pods, err := a.running(ctx, 1, isOfWorkload)
	if err != nil {
		return err
	}
	pod, err := podOn(node, pods)
	if err != nil {
		return err
	}
	a.story.Say("A Deployment of one pod has a pool of its own, with one address and no spec.parents: %s, on %s. Pods of another pool are on the other nodes.",
		addressOf(pod), node.Name())
	z, err := a.watchPod(ctx, pod)
	if err != nil {
		return err
	}
	if err := z.losePower(ctx); err != nil {
		return err
	}
	successor, err := z.servedAgain(ctx)
	if err != nil {
		return err
	}
	// The pod of a node that boots again has ended before the node is on the underlay.
	if err := z.comesHome(ctx, successor); err != nil {
		return err
	}
	if err := node.HealUnderlay(); err != nil {
		return err
	}
	if err := z.onlySuccessorSpeaks(ctx, successor); err != nil {
		return err
	}
	// The aftermath judges one pool.
	for _, n := range neighbours {
		if err := a.deletePod(ctx, n, false); err != nil {
			return err
		}
	}
	return nil
}

func isOfWorkload(pod *corev1.Pod) bool { return pod.Labels["app"] == workload }

// stageNeighbours runs a pod of another pool of the subnet on each of the nodes.
func (a *act) stageNeighbours(ctx context.Context, nodes []*cluster.Node) ([]*cluster.Pod, error) {
	pool := a.namespace + "-neighbours"
	err := a.addPool(ctx, pool, v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: a.ips(firstNeighbour, len(nodes)), Default: ptr.To(false)})
	if err != nil {
		return nil, err
	}
	var pods []*cluster.Pod
	for _, n := range nodes {
		pod, err := a.runPod(ctx, "neighbour-"+n.Name(), n, func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationPrefix + "ippool": fmt.Sprintf(`{"ipv4":[%q]}`, pool)}
		})
		if err != nil {
			return nil, err
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// losePower pulls both cables of the node, and waits until Kubernetes has marked it as unreachable.
func (z *zombie) losePower(ctx context.Context) error {
	node := z.pod.Node
	z.after("plug in both cables of "+node.Name(), func(ctx context.Context) error {
		return errors.Join(node.HealManagement(), node.HealUnderlay(), z.WaitReady(ctx))
	})
	if err := errors.Join(node.CutUnderlay(), node.CutManagement()); err != nil {
		return err
	}
	z.cut = time.Now()
	z.story.Say("Both cables of %s are pulled, as if it had lost its power.", node.Name())
	if err := z.isGivenUp(ctx); err != nil {
		return err
	}
	z.figures.add("node unreachable for Kubernetes, from the cut", time.Since(z.cut))
	return nil
}

// servedAgain judges that the address serves a pod on another node soon after the lost pod was due,
// and that no person has helped.
func (z *zombie) servedAgain(ctx context.Context) (*cluster.Pod, error) {
	taken, err := z.chronicle.wait(ctx, reclaimLimit, z.addr, z.cut, "Quarantined", isQuarantined)
	if err != nil {
		return nil, err
	}
	due := taken.at // an address is taken as soon as its holder is due
	z.figures.add("pod due, from the cut", due.Sub(z.cut))
	successor, err := z.successor(ctx)
	if err != nil {
		return nil, err
	}
	bound, err := z.chronicle.wait(ctx, reclaimLimit, z.addr, due, "Bound to another pod", func(e entry) bool { return isBoundToOther(e, z.pod.UID) })
	if err != nil {
		return nil, err
	}
	if err := z.hearsOnly(ctx, successor, z.cut); err != nil {
		return nil, err
	}
	served := firstAnswered(z.pings.all(), due).Sub(due)
	z.figures.add("due to bound", bound.at.Sub(due))
	z.figures.add("due to served", served)
	if served > servedLimit {
		return nil, fmt.Errorf("%s was served %s after its lost pod was due; %s are allowed", z.addr, round(served), servedLimit)
	}
	z.story.Say("%s after the lost pod was due, %s serves pod %s on %s: the other nodes had heard the lost pod, and heard silence.",
		round(served), z.addr, successor.Name, successor.Node.Name())
	return successor, z.show(ctx, "get", "fllease", z.addr.String(), "--output=wide")
}

// onlySuccessorSpeaks judges that since the cut, no other host has spoken for the address.
func (z *zombie) onlySuccessorSpeaks(ctx context.Context, successor *cluster.Pod) error {
	if err := z.hearsOnly(ctx, successor, z.cut); err != nil {
		return fmt.Errorf("after the underlay was back: %w", err)
	}
	mac, err := successor.MAC()
	if err != nil {
		return err
	}
	speakers := capture.Speakers(capture.After(z.capture.Frames(), z.cut), z.addr)
	if len(speakers) != 1 || speakers[0] != mac.String() {
		return fmt.Errorf("%v speak for %s, not only its new holder %s", speakers, z.addr, mac)
	}
	return nil
}
