// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
)

// comers is the number of pods that come to the pool, one after the other.
const comers = 10

// A pool without spec.warm has Warm addresses from the second pod of a node on. A small pool never
// has any. Pods of a pool with warm: 0 take turns with them, so that the figures can be compared on
// any machine.
func TestAPoolThatSaysNothingServesPodsFromItsStock(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 1)
	c.StartController()
	n := c.Nodes[0]
	unset, never, small := c.Pool("unset", "10.66.1.0/24", "10.66.1.2-10.66.1.99"),
		c.Pool("never", "10.66.2.0/24", "10.66.2.2-10.66.2.99"), c.Pool("small", "10.66.3.0/28", "10.66.3.2-10.66.3.14")
	never.Spec.Warm = ptr.To[int64](0)
	change(ctx, t, c, never)

	for i := range comers {
		took := map[string]time.Duration{}
		// The first pod comes on demand. After the second one, the node keeps two.
		measured := i < 2 || i == comers-1
		for _, pool := range []string{"small", "never", "unset"} {
			if !measured && pool != "unset" {
				continue
			}
			var stock []v1alpha1.IPLease
			if measured && pool == "unset" {
				stock = stocked(ctx, t, c, n, pool, min(i, 2))
			}
			sandbox := sandboxOf(ctx, t, n, pool, i)
			begun := time.Now()
			check.OK(t, sandbox.Add(ctx))
			took[pool] = time.Since(begun).Round(time.Millisecond)
			if len(stock) > 0 && !slices.ContainsFunc(stock, func(l v1alpha1.IPLease) bool { return l.Spec.Address == sandbox.Addr.String() }) {
				t.Errorf("pod %d got %s, which is none of the stock", i+1, sandbox.Addr)
			}
		}
		if measured {
			t.Logf("ADD of pod %d: %v", i+1, took)
		}
	}
	for _, pool := range []string{"small", "never"} {
		stock, err := n.Stock(ctx, pool)
		check.That(t, err == nil && len(stock) == 0, "pool %s has the Warm leases %v, %v", pool, stock, err)
	}
	c.Eventually(t, "the leases are those of the living, and Warm ones", func() error { return c.LeasesAreLiving(ctx, v1alpha1.StateWarm) })

	// Only its pods keep a pool. Without them, it can be deleted.
	for _, s := range c.Living() {
		check.OK(t, s.Finish(ctx))
	}
	for _, pool := range []*v1alpha1.IPPool{unset, never, small} {
		check.OK(t, c.Delete(ctx, pool))
		c.Eventually(t, "pool "+pool.Name+" is gone", func() error {
			err := c.Get(ctx, client.ObjectKeyFromObject(pool), pool)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("it has the status %+v: %w", pool.Status, err)
		})
	}
}

// The only free addresses of a pool are the Warm ones of three nodes. Pods come to one node at once
// and get them all. No pod is told that the pool is exhausted.
func TestPodsOfOneNodeGetTheWarmAddressesOfAllNodes(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.StartController()
	const each = 2
	// Each agent leaves as many addresses free as all nodes together keep ready.
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.30")
	pool.Spec.Warm = ptr.To[int64](each)
	change(ctx, t, c, pool)
	inUse := begin(ctx, t, c, crowd(t, c, "first", len(c.Nodes)))
	pool.Spec.IPs = nil
	for _, s := range inUse {
		pool.Spec.IPs = append(pool.Spec.IPs, s.Addr.String())
	}
	c.Eventually(t, "each node has its stock, and all of it is proven", func() error {
		stock, err := c.Nodes[0].Stock(ctx, pool.Name)
		kept := map[string]int{}
		for _, l := range stock {
			kept[l.Spec.NodeName]++
		}
		for _, n := range c.Nodes {
			ready, failed := n.Ready(ctx, pool.Name)
			if kept[n.Name] != each || ready != each {
				err = errors.Join(err, failed, fmt.Errorf("%s has %d Warm leases, %d are ready", n.Name, kept[n.Name], ready))
			}
		}
		return err
	})
	stock := check.Value(c.Nodes[0].Stock(ctx, pool.Name))(t)
	for _, l := range stock {
		pool.Spec.IPs = append(pool.Spec.IPs, l.Spec.Address)
	}
	change(ctx, t, c, pool)

	var late []*corev1.Pod
	for i := range stock {
		pod := check.Value(c.Nodes[2].NewPod(ctx, fmt.Sprintf("late-%d", i), nil))(t)
		late = append(late, pod)
	}
	begin(ctx, t, c, late)
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
	full := check.Value(c.Nodes[2].Exhausted(ctx))(t)
	check.That(t, full == 0, "%d ADDs found the pool exhausted while addresses were kept ready", full)
	all := &eventsv1.EventList{}
	check.OK(t, c.List(ctx, all, client.InNamespace(nodes.Shop)))
	for _, e := range all.Items {
		check.That(t, e.Reason != "AddressRefused", "pod %s was refused: %s", e.Regarding.Name, e.Note)
	}
	check.OK(t, c.SpeakersAreHolders())
}

// sandboxOf makes a pod of a pool, and a sandbox for it.
func sandboxOf(ctx context.Context, t *testing.T, n *nodes.Node, pool string, number int) *nodes.Sandbox {
	t.Helper()
	pod, err := n.NewPod(ctx, fmt.Sprintf("%s-%d", pool, number), func(p *corev1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationPrefix + "ippool": fmt.Sprintf(`{"ipv4":[%q]}`, pool)}
	})
	check.OK(t, err)
	return check.Value(n.NewSandbox(pod))(t)
}

// change writes the spec of a pool, whose status the controller may have written meanwhile.
func change(ctx context.Context, t *testing.T, c *nodes.Cluster, pool *v1alpha1.IPPool) {
	t.Helper()
	spec := pool.Spec
	check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(pool), pool))
	before := pool.DeepCopy()
	pool.Spec = spec
	check.OK(t, c.Patch(ctx, pool, client.MergeFrom(before)))
}

// stocked waits until a node has a number of Warm leases of a pool, all ready, and returns them.
func stocked(ctx context.Context, t *testing.T, c *nodes.Cluster, n *nodes.Node, pool string, count int) (stock []v1alpha1.IPLease) {
	t.Helper()
	c.Eventually(t, fmt.Sprintf("%d addresses of pool %s are ready", count, pool), func() error {
		var err error
		if stock, err = n.Stock(ctx, pool); err != nil {
			return err
		}
		ready, err := n.Ready(ctx, pool)
		if err == nil && (len(stock) != count || ready != count) {
			err = fmt.Errorf("there are %d Warm leases, %d are ready", len(stock), ready)
		}
		return err
	})
	return stock
}
