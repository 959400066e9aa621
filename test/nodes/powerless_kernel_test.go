// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
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

// A pod that has a pool of its own loses its node. Pods of another pool use the same parent on the
// other nodes. No spec.parents says so, but these nodes have heard the lost pod there.
func TestAPoolOfOneAddressIsServedAgainAfterItsNodeHasLostItsPower(t *testing.T) {
	for _, row := range []struct {
		name     string
		ownFirst bool
	}{
		{"the pod starts after those of the other pool", false},
		{"the pod starts before those of the other pool", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
			defer cancel()
			c := nodes.New(t, 3)
			c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
			c.NamedPool("own", "10.66.0.0/24", "10.66.0.20")
			c.StartController()
			o := &off{Cluster: c, t: t, ctx: ctx}
			dark, light := c.Nodes[0], c.Nodes[1]
			others := crowd(t, c, "heard", len(c.Nodes))[1:]
			if !row.ownFirst {
				begin(ctx, t, c, others)
			}
			pod, err := dark.NewPod(ctx, "app-1", nodes.Wants("own"))
			check(t, err)
			was, err := dark.Begin(ctx, pod)
			check(t, err)
			if row.ownFirst {
				begin(ctx, t, c, others)
			}

			check(t, errors.Join(dark.KillAgent(), dark.CutUnderlay(), was.Remove()))
			o.report(dark, corev1.ConditionUnknown)
			check(t, c.ForgetPod(ctx, pod))
			due := time.Now()
			was.Abandon()
			ctx, cancel = context.WithTimeout(ctx, nodes.Limit/3)
			defer cancel()
			next, err := light.NewPod(ctx, "app-2", nodes.Wants("own"))
			check(t, err)
			is, err := light.Begin(ctx, next)
			check(t, err)
			t.Logf("served %s after the pod was due", time.Since(due).Round(time.Millisecond))
			if is.Addr != was.Addr {
				t.Errorf("app had %s and has %s", was.Addr, is.Addr)
			}
			check(t, c.SpeakersAreHolders())
		})
	}
}

// Two switches that are not connected, and a parent of the same name on both. Nodes that have never
// heard the holder of an address cannot prove that it is silent, although they hear each other in the
// same subnet.
func TestSilenceOnAnotherSegmentOfTheSameNameProvesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	c := nodes.New(t, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.NamedPool("own", "10.66.0.0/24", "10.66.0.20")
	dark := c.Nodes[0]
	check(t, dark.MoveElsewhere())
	c.StartController()
	o := &off{Cluster: c, t: t, ctx: ctx}
	begin(ctx, t, c, crowd(t, c, "heard", len(c.Nodes))[1:])
	pod, err := dark.NewPod(ctx, "app-1", nodes.Wants("own"))
	check(t, err)
	was, err := dark.Begin(ctx, pod)
	check(t, err)

	// The pod lives on behind a cut management network.
	check(t, dark.KillAgent())
	o.report(dark, corev1.ConditionUnknown)
	check(t, c.ForgetPod(ctx, pod))
	was.Abandon()
	var asked []string
	c.Eventually(t, "both other nodes say that they cannot tell", func() error {
		l := &v1alpha1.IPLease{}
		if err := c.Get(ctx, client.ObjectKey{Name: was.Addr.String()}, l); err != nil {
			t.Fatalf("the lease is gone while its pod lives: %v", err)
		}
		if l.Spec.State == v1alpha1.StateQuarantined && l.Spec.Message != "" && !slices.Contains(asked, l.Spec.NodeName) {
			asked = append(asked, l.Spec.NodeName)
			t.Logf("%s: %s", l.Spec.NodeName, l.Spec.Message)
		}
		if len(asked) < 2 {
			return fmt.Errorf("%s %s at %s: %q", l.Spec.State, l.Spec.Reason, l.Spec.NodeName, l.Spec.Message)
		}
		return nil
	})
	check(t, c.SpeakersAreHolders())
}
