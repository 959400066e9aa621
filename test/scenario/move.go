// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// move has the template name another pool, and the first one again.
func (n *namesakes) move(ctx context.Context) error {
	other := n.namespace + "-other"
	spec := v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: n.ips(firstHost+4*nameCount, 2)}
	if err := n.addPool(ctx, other, spec); err != nil {
		return err
	}
	if err := n.moveTo(ctx, n.namespace, other); err != nil {
		return err
	}
	return n.moveTo(ctx, other, n.namespace)
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
	return eventually(ctx, eventLimit, "no lease in pool "+from, func(ctx context.Context) error {
		left, err := n.leases(ctx, from)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there are %s", brief(left))
		}
		return err
	})
}
