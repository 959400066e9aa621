// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/nodes"
)

// A pod has a misspelt annotation, and a hostPort on a network without portmap.
func TestEventsReportTheWishesOfAPodThatHaveNoEffect(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 1)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.Eventually(t, "the network is there, without which a runtime sends no ADD", c.Nodes[0].HasNetwork)
	started(ctx, t, c.Nodes[0], "web", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1alpha1.AnnotationPrefix + "ip-pool": `{"ipv4":["other"]}`}
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	})
	for reason, text := range map[string]string{
		"AnnotationUnknown": "ipam.fenceline.io/ip-pool of pod shop/web does not exist, the nearest one is ipam.fenceline.io/ippool",
		"HostPortIgnored":   "hostPort 8080/TCP of pod shop/web has no effect",
	} {
		c.Eventually(t, reason, func() error { return eventOf(ctx, c, "Pod", "web", reason, text) })
	}
}
