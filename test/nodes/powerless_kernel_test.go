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

// The node of a StatefulSet's pod loses its power. The next pod of that name has
// the address, proven by silence, on another node, and keeps it when the first
// node is back.
func TestAnAddressFollowsItsNameFromANodeWithoutPower(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	c := nodes.New(t, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	o := &off{Cluster: c, t: t, ctx: ctx}
	dark, light := c.Nodes[0], c.Nodes[1]
	begin(ctx, t, c, crowd(t, c, "heard", len(c.Nodes))[1:]) // so that the silence of others counts
	of := func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "u", Controller: ptr.To(true)}}
	}
	pod, err := dark.NewPod(ctx, "web-0", of)
	check(t, err)
	was, err := dark.Begin(ctx, pod)
	check(t, err)

	check(t, errors.Join(dark.KillAgent(), dark.CutUnderlay(), was.Remove()))
	o.report(dark, corev1.ConditionUnknown)
	check(t, c.ForgetPod(ctx, pod))
	next, err := light.NewPod(ctx, "web-0", of)
	check(t, err)
	is, err := light.Begin(ctx, next)
	check(t, err)
	answers := func() {
		t.Helper()
		if is.Addr != was.Addr {
			t.Errorf("web-0 had %s and has %s", was.Addr, is.Addr)
		}
		check(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", is.Addr.String()).Run())
	}
	answers()

	check(t, errors.Join(dark.HealUnderlay(), dark.StartAgent(), dark.AwaitAgent(ctx)))
	o.report(dark, corev1.ConditionTrue)
	check(t, was.End(ctx))
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
	answers()
	check(t, c.SpeakersAreHolders())
}
