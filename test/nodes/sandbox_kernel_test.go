// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// The sandboxes of two pods die while the pods live: one has a MAC of its plugin, the other a MAC of its
// address. The kubelet sends the DEL of the dead sandbox before or after the ADD of the next one, or the
// agent is replaced in between. Each pod has its address again each time. Its lease ends with the pod.
func TestAPodKeepsItsAddressWhenItsSandboxDies(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	c := nodes.New(t, 1)
	c.Pool("plugin", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.FromIPPool("address", "10.66.0.0/24", "10.66.0.12-10.66.0.19", "0a:58")
	c.StartController()
	n, host := c.Nodes[0], c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	pods := map[string]*nodes.Sandbox{}
	for _, pool := range []string{"plugin", "address"} {
		pods[pool] = started(ctx, t, n, pool, func(pod *corev1.Pod) {
			nodes.Wants(pool)(pod)
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: ptr.To(true)}}
		})
	}
	if mac := pods["address"].MAC.String(); mac != fromAddress(pods["address"].Addr).String() {
		t.Errorf("the pod with a MAC of its address %s has %s", pods["address"].Addr, mac)
	}
	for _, order := range []struct {
		name string
		next func(was *nodes.Sandbox) (*nodes.Sandbox, error)
	}{
		{"DEL, then ADD", func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
			check.OK(t, was.End(ctx))
			return n.Begin(ctx, was.Pod)
		}},
		{"ADD, then DEL", func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
			was.Abandon()
			next, err := n.Begin(ctx, was.Pod)
			return next, errors.Join(err, was.End(ctx))
		}},
		{"DEL, another agent, then ADD", func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
			check.OK(t, errors.Join(was.End(ctx), n.StopAgent(), n.StartAgent(), n.AwaitAgent(ctx)))
			return n.Begin(ctx, was.Pod)
		}},
	} {
		for pool, was := range pods {
			is, err := order.next(was)
			check.OK(t, err)
			if is.Addr != was.Addr {
				t.Errorf("%s: the pod of pool %s had %s and has %s", order.name, pool, was.Addr, is.Addr)
			}
			c.Eventually(t, order.name+": the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
			check.OK(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", is.Addr.String()).Run())
			pods[pool] = is
		}
	}
	for _, s := range pods {
		check.OK(t, errors.Join(s.End(ctx), c.ForgetPod(ctx, s.Pod)))
	}
	c.Eventually(t, "the kept leases end with the pods", func() error { return c.LeasesAreLiving(ctx) })
	check.OK(t, c.SpeakersAreHolders())
}
