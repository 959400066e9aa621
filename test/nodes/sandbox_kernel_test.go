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

	"github.com/fenceline/fenceline/test/nodes"
)

// The sandbox of a pod dies while the pod lives. The kubelet sends the DEL of the dead sandbox before
// or after the ADD of the next one, or the agent is replaced in between. The pod has its address again
// each time. Its lease ends with the pod.
func TestAPodKeepsItsAddressWhenItsSandboxDies(t *testing.T) {
	for name, pool := range map[string]func(*nodes.Cluster){
		"with a MAC of its plugin":  func(c *nodes.Cluster) { c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9") },
		"with a MAC of its address": func(c *nodes.Cluster) { c.FromIPPool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9", "0a:58") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := nodes.New(t, 1)
			pool(c)
			keepsItsAddress(t, c)
		})
	}
}

func keepsItsAddress(t *testing.T, c *nodes.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	c.StartController()
	n, host := c.Nodes[0], c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	pod, err := n.NewPod(ctx, "web", func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: ptr.To(true)}}
	})
	check(t, err)
	was, err := n.Begin(ctx, pod)
	check(t, err)
	for _, order := range []struct {
		name string
		next func() (*nodes.Sandbox, error)
	}{
		{"DEL, then ADD", func() (*nodes.Sandbox, error) {
			check(t, was.End(ctx))
			return n.Begin(ctx, pod)
		}},
		{"ADD, then DEL", func() (*nodes.Sandbox, error) {
			was.Abandon()
			next, err := n.Begin(ctx, pod)
			return next, errors.Join(err, was.End(ctx))
		}},
		{"DEL, another agent, then ADD", func() (*nodes.Sandbox, error) {
			check(t, errors.Join(was.End(ctx), n.StopAgent(), n.StartAgent(), n.AwaitAgent(ctx)))
			return n.Begin(ctx, pod)
		}},
	} {
		is, err := order.next()
		check(t, err)
		if is.Addr != was.Addr {
			t.Errorf("%s: the pod had %s and has %s", order.name, was.Addr, is.Addr)
		}
		c.Eventually(t, order.name+": the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
		check(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", is.Addr.String()).Run())
		was = is
	}
	check(t, errors.Join(was.End(ctx), c.ForgetPod(ctx, pod)))
	c.Eventually(t, "the kept lease ends with the pod", func() error { return c.LeasesAreLiving(ctx) })
	check(t, c.SpeakersAreHolders())
}
