// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/cluster"
)

// move has the template name another pool.
func (n *namesakes) move(ctx context.Context) error {
	other := n.other()
	spec := v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: n.ips(firstHost+4*nameCount, 2)}
	if err := n.addPool(ctx, other, spec); err != nil {
		return err
	}
	return n.moveTo(ctx, n.namespace, other)
}

// moveTo moves the one pod that is left.
func (n *namesakes) moveTo(ctx context.Context, from, to string) error {
	const name, ippool = workload + "-0", v1alpha1.AnnotationPrefix + "ippool"
	pools := fmt.Sprintf(`{"ipv4":[%q]}`, to)
	if err := n.edit(ctx, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, ippool, pools); err != nil {
		return err
	}
	next, err := n.running(ctx, 1, func(p *corev1.Pod) bool { return p.Annotations[ippool] == pools })
	if err != nil {
		return err
	}
	l, err := n.lease(ctx, addressOf(next[0]))
	if err != nil {
		return err
	}
	if l.Spec.Pool != to {
		return fmt.Errorf("pod %s names pool %s and has %s of pool %s", name, to, l.Spec.Address, l.Spec.Pool)
	}
	if _, err := n.event(ctx, name, "AddressLeft", l.Spec.Address+" replaces "); err != nil {
		return err
	}
	n.story.Say("The template names pool %s. %s has %s of that pool.", to, name, l.Spec.Address)
	return n.hasNoLease(ctx, from)
}

// other is the second pool.
func (n *namesakes) other() string { return n.namespace + "-other" }

// redirect has the template name no pool, so that spec.default names the first one. The pod that is
// left keeps its address of the other pool.
func (n *namesakes) redirect(ctx context.Context) error {
	had, err := n.running(ctx, 1, everyPod)
	if err != nil {
		return err
	}
	if err := n.edit(ctx, `{"spec":{"template":{"metadata":{"annotations":{%q:null}}}}}`, v1alpha1.AnnotationPrefix+"ippool"); err != nil {
		return err
	}
	next, err := n.successorOf(ctx, had[0])
	if err != nil {
		return err
	}
	if addressOf(next) != addressOf(had[0]) {
		return fmt.Errorf("spec.default names pool %s: %s had %s and has %s", n.namespace, next.Name, addressOf(had[0]), addressOf(next))
	}
	n.story.Say("The template names no pool, and spec.default names pool %s. %s still has %s.", n.namespace, next.Name, addressOf(next))
	return n.elsewhere(ctx, next)
}

// elsewhere has the pool of a pod serve the pod's node only, and moves the pod to another node.
func (n *namesakes) elsewhere(ctx context.Context, p *cluster.Pod) error {
	if err := n.editPool(ctx, n.other(), func(s *v1alpha1.IPPoolSpec) { s.NodeName = []string{p.Node.Name()} }); err != nil {
		return err
	}
	n.after("uncordon "+p.Node.Name(), func(ctx context.Context) error { return n.cordon(ctx, p.Node, false) })
	if err := n.cordon(ctx, p.Node, true); err != nil {
		return err
	}
	if err := n.deletePod(ctx, p, false); err != nil {
		return err
	}
	next, err := n.successorOf(ctx, p)
	if err != nil {
		return err
	}
	l, err := n.lease(ctx, addressOf(next))
	if err != nil {
		return err
	}
	if l.Spec.Pool != n.namespace {
		return fmt.Errorf("%s is on %s and has %s of pool %s", next.Name, next.Node.Name(), l.Spec.Address, l.Spec.Pool)
	}
	text := fmt.Sprintf("%s replaces %s: pool %s does not serve the pod on node %s", l.Spec.Address, addressOf(p), n.other(), next.Node.Name())
	if _, err := n.event(ctx, next.Name, "AddressLeft", text); err != nil {
		return err
	}
	if err := n.hasNoLease(ctx, n.other()); err != nil {
		return err
	}
	n.story.Say("Pool %s serves %s only. %s starts on %s, with %s of pool %s. Its old address is free.",
		n.other(), p.Node.Name(), next.Name, next.Node.Name(), l.Spec.Address, n.namespace)
	return n.cordon(ctx, p.Node, false)
}

// successorOf waits for the next pod of a name.
func (n *namesakes) successorOf(ctx context.Context, p *cluster.Pod) (*cluster.Pod, error) {
	next, err := n.running(ctx, 1, func(q *corev1.Pod) bool { return q.Name == p.Name && string(q.UID) != p.UID })
	if err != nil {
		return nil, err
	}
	return next[0], nil
}
