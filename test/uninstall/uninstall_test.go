// SPDX-License-Identifier: Apache-2.0

//go:build api

package uninstall

import (
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
func (c *cluster) pool() *v1alpha1.IPPool {
	c.t.Helper()
	pool := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "blue", Finalizers: []string{v1alpha1.FinalizerPool}},
		Spec:       v1alpha1.IPPoolSpec{Subnet: "10.6.0.0/24"},
	}
	c.create(pool)
	return pool
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

// force is what a person does who wants the leases gone.
func (c *cluster) force() {
	c.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"fenceline.io/force-delete":""}}}`))
	check.OK(c.t, c.api.Patch(c.t.Context(), ns, patch))
}

func (c *cluster) isForced() bool {
	c.t.Helper()
	ns := &corev1.Namespace{}
	check.OK(c.t, c.api.Get(c.t.Context(), client.ObjectKey{Name: namespace}, ns))
	_, forced := ns.Annotations[v1alpha1.AnnotationForceDelete]
	return forced
}

// finalizers of the pool.
func (c *cluster) finalizers() int {
	c.t.Helper()
	pool := &v1alpha1.IPPool{}
	check.OK(c.t, c.api.Get(c.t.Context(), client.ObjectKey{Name: "blue"}, pool))
	return len(pool.Finalizers)
}

func TestUninstall(t *testing.T) {
	c := newCluster(t)
	c.install()
	c.pool()
	bound := newLease("10.6.0.2", v1alpha1.StateBound, "n1")
	c.create(bound)
	c.create(newLease("10.6.0.3", v1alpha1.StateRetained, ""))
	before := c.installed()

	t.Run("is refused while leases exist, and changes nothing", func(t *testing.T) {
		out, err := c.helm("uninstall", "fenceline")
		check.Must(t, err != nil && strings.Contains(out, "fenceline-uninstall-begin"), "helm said %v:\n%s", err, out)
		t.Logf("helm says:\n%s", out)
		for _, words := range []string{"leases exist", "1 Bound (delete their pods)", "1 Retained", "kubectl annotate namespace fenceline-system fenceline.io/force-delete="} {
			said := c.log("begin")
			check.That(t, strings.Contains(said, words), "the step does not say %q: %s", words, said)
		}
		after := c.installed()
		check.That(t, maps.Equal(before, after), "there was %v, there is %v", before, after)
		check.That(t, c.leases() == 2 && c.finalizers() == 1, "%d leases, %d finalizers", c.leases(), c.finalizers())
	})
	t.Run("that was refused is taken back by a rollback", func(t *testing.T) {
		c.mustHelm("rollback", "fenceline", "1")
		c.mustHelm("upgrade", "fenceline", "../../charts/fenceline")
	})
	t.Run("without its hooks leaves leases and pools, and an installation goes on from them", func(t *testing.T) {
		c.mustHelm("uninstall", "fenceline", "--no-hooks")
		left := c.installed()
		check.That(t, len(left) == 0, "there is still %v", left)
		check.That(t, c.leases() == 2 && c.finalizers() == 1, "%d leases, %d finalizers", c.leases(), c.finalizers())
		c.install()
		now := &v1alpha1.IPLease{}
		err := c.api.Get(t.Context(), client.ObjectKeyFromObject(bound), now)
		check.That(t, err == nil && now.UID == bound.UID, "the lease is another one: %v", err)
	})
	t.Run("by force removes leases and finalizers", func(t *testing.T) {
		_, err := c.helm("uninstall", "fenceline")
		check.Must(t, err != nil, "uninstalled without force")
		c.force()
		c.mustHelm("uninstall", "fenceline")
		check.That(t, !c.isForced(), "the next installation will be under force")
		left := c.installed()
		check.That(t, len(left) == 0, "there is still %v", left)
		check.That(t, c.leases() == 0 && c.finalizers() == 0, "%d leases, %d finalizers", c.leases(), c.finalizers())
		said := c.log("finish")
		for _, words := range []string{`"node":"off"`, `"msg":"free","logger":"audit","address":"10.6.0.2"`, `"reason":"Uninstalled"`} {
			check.That(t, strings.Contains(said, words), "the step does not say %q: %s", words, said)
		}
	})
	t.Run("is refused when a pod gets an address on the way, and a rollback brings back what has ended", func(t *testing.T) {
		pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
		check.OK(t, c.api.Delete(t.Context(), pool))
		c.install()
		c.pool()
		late := newLease("10.6.0.4", v1alpha1.StateBound, "n1")
		c.beforeFinish(func() error { return c.api.Create(t.Context(), late) })
		out, err := c.helm("uninstall", "fenceline")
		check.Must(t, err != nil && strings.Contains(out, "fenceline-uninstall-finish"), "helm said %v:\n%s", err, out)
		said := c.log("finish")
		check.That(t, strings.Contains(said, "leases exist: 1 Bound"), "the step does not say why: %s", said)
		check.That(t, c.leases() == 1 && c.finalizers() == 1, "%d leases, %d finalizers", c.leases(), c.finalizers())
		c.mustHelm("rollback", "fenceline", "1")
		c.awaitAgents()
		after := c.installed()
		check.That(t, maps.Equal(before, after), "there was %v, there is %v", before, after)
		check.OK(t, c.api.Delete(t.Context(), late))
	})
	t.Run("without leases of pods needs no force, and lets the pools and the Warm leases go", func(t *testing.T) {
		warm := newLease("10.6.0.5", v1alpha1.StateWarm, "n1")
		warm.Spec.Holder = nil
		c.create(warm)
		c.mustHelm("uninstall", "fenceline")
		n := c.leases()
		check.That(t, n == 0, "%d leases", n)
		left := c.installed()
		check.That(t, len(left) == 0, "there is still %v", left)
		if n := c.finalizers(); n != 0 {
			t.Errorf("the pool has %d finalizers", n)
		}
	})
}
