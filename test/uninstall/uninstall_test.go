// SPDX-License-Identifier: Apache-2.0

//go:build api

package uninstall

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// pool makes a pool with the finalizer that the controller gives it.
func (c *cluster) pool() {
	c.t.Helper()
	meta := metav1.ObjectMeta{Name: "blue", Finalizers: []string{v1alpha1.FinalizerPool}}
	c.create(&v1alpha1.IPPool{ObjectMeta: meta, Spec: v1alpha1.IPPoolSpec{Subnet: "10.6.0.0/24"}})
}

// newLease is a lease that only an agent may make without force.
func newLease(address string, state v1alpha1.LeaseState, node string) *v1alpha1.IPLease {
	return &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: address, Annotations: map[string]string{v1alpha1.AnnotationForceDelete: ""}},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, Pool: "blue", State: state, Since: metav1.Now(), NodeName: node, Session: "node/boot",
			Holder: &v1alpha1.Holder{Namespace: "default", Pod: "web-0", PodUID: "11111111-0000-4000-8000-000000000000", Interface: "eth0"},
		},
	}
}

func TestUninstall(t *testing.T) {
	c := newCluster(t)
	c.install()
	t.Run("helm test asks for a pool, and leaves nothing behind", func(t *testing.T) {
		before := c.installed()
		out, err := c.helm("test", "fenceline")
		check.Must(t, err != nil && strings.Contains(out, "fenceline-test-judge"), "helm said %v:\n%s", err, out)
		check.Says(t, c.log("judge"), "there is no pool, so no pod gets an address", "docs/pools.md")
		c.pool()
		c.mustHelm("test", "fenceline")
		check.Says(t, c.log("judge"), "both pods run on one node")
		c.eventually("the end of what helm test has made", func() error {
			if now := c.installed(); !maps.Equal(now, before) {
				return fmt.Errorf("there is %v", now)
			}
			return nil
		})
	})
	bound := newLease("10.6.0.2", v1alpha1.StateBound, "n1")
	c.create(bound)
	c.create(newLease("10.6.0.3", v1alpha1.StateRetained, ""))
	before := c.installed()

	t.Run("is refused while leases exist, and changes nothing", func(t *testing.T) {
		out, err := c.helm("uninstall", "fenceline")
		check.Must(t, err != nil && strings.Contains(out, "fenceline-uninstall-begin"), "helm said %v:\n%s", err, out)
		check.Says(t, c.log("begin"), "leases exist", "1 Bound (delete their pods)", "1 Retained", "kubectl annotate namespace fenceline-system fenceline.io/force-delete=")
		check.Same(t, c.installed(), before, "installed")
		c.has(2, 1)
	})
	t.Run("that was refused is taken back by a rollback", func(t *testing.T) {
		c.mustHelm("rollback", "fenceline", "1")
		c.mustHelm("upgrade", "fenceline", "../../charts/fenceline")
	})
	t.Run("without its hooks leaves leases and pools, and an installation goes on from them", func(t *testing.T) {
		c.mustHelm("uninstall", "fenceline", "--no-hooks")
		check.None(t, c.installed(), "there is still")
		c.has(2, 1)
		c.install()
		now := &v1alpha1.IPLease{}
		err := c.api.Get(t.Context(), client.ObjectKeyFromObject(bound), now)
		check.That(t, err == nil && now.UID == bound.UID, "the lease is another one: %v", err)
	})
	t.Run("by force removes leases and finalizers", func(t *testing.T) {
		check.Must(t, check.Err(c.helm("uninstall", "fenceline")) != nil, "uninstalled without force")
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		forced := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"fenceline.io/force-delete":""}}}`))
		check.OK(t, c.api.Patch(t.Context(), ns, forced)) // as a person does
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		labelled := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pool.fenceline.io/blue":"true"}}}`))
		check.OK(t, c.api.Patch(t.Context(), node, labelled))
		c.mustHelm("uninstall", "fenceline")
		check.OK(t, c.api.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		check.That(t, node.Labels["pool.fenceline.io/blue"] == "", "the node keeps %v", node.Labels)
		ns = &corev1.Namespace{}
		check.OK(t, c.api.Get(t.Context(), client.ObjectKey{Name: namespace}, ns))
		check.That(t, !metav1.HasAnnotation(ns.ObjectMeta, v1alpha1.AnnotationForceDelete), "the next installation will be under force")
		check.None(t, c.installed(), "there is still")
		c.has(0, 0)
		check.Says(t, c.log("finish"), `"node":"off"`, `"msg":"free","logger":"audit","address":"10.6.0.2"`, `"reason":"Uninstalled"`)
	})
	t.Run("is refused when a pod gets an address on the way, and a rollback brings back what has ended", func(t *testing.T) {
		check.OK(t, c.api.Delete(t.Context(), &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}))
		c.install()
		c.pool()
		late := newLease("10.6.0.4", v1alpha1.StateBound, "n1")
		c.meanwhile <- func() error { return c.api.Create(t.Context(), late) }
		out, err := c.helm("uninstall", "fenceline")
		check.Must(t, err != nil && strings.Contains(out, "fenceline-uninstall-finish"), "helm said %v:\n%s", err, out)
		check.Says(t, c.log("finish"), "leases exist: 1 Bound")
		c.has(1, 1)
		c.mustHelm("rollback", "fenceline", "1")
		c.awaitAgents()
		check.Same(t, c.installed(), before, "installed")
		check.OK(t, c.api.Delete(t.Context(), late))
	})
	t.Run("without leases of pods needs no force, and lets the pools and the Warm leases go", func(t *testing.T) {
		warm := newLease("10.6.0.5", v1alpha1.StateWarm, "n1")
		warm.Spec.Holder = nil
		c.create(warm)
		c.mustHelm("uninstall", "fenceline")
		c.has(0, 0)
		check.None(t, c.installed(), "there is still")
	})
}
