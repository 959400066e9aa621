// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// underlay is the subnet of all scenarios, so that all hosts on the wire reach each other. Scenario
// n has 10.78.n.0/24 of it.
var underlay = netip.MustParsePrefix("10.78.0.0/16")

// address returns an address of the scenario.
func (a *act) address(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 78, byte(a.scenario.number), byte(host)})
}

// firstHost is the first address of each pool.
const firstHost = 10

// underlay6 is the IPv6 subnet beside it.
var underlay6 = netip.MustParsePrefix("fd78::/64")

// address6 returns an IPv6 address of the scenario.
func (a *act) address6(host int) netip.Addr {
	addr := underlay6.Addr().As16()
	addr[13], addr[15] = byte(a.scenario.number), byte(host)
	return netip.AddrFrom16(addr)
}

// ips is a range of count addresses of the scenario.
func (a *act) ips(first, count int) []string {
	return []string{fmt.Sprintf("%s-%s", a.address(first), a.address(first+count-1))}
}

// ips6 is a range of count IPv6 addresses of the scenario, from firstHost on.
func (a *act) ips6(count int) []string {
	return []string{fmt.Sprintf("%s-%s", a.address6(firstHost), a.address6(firstHost+count-1))}
}

// makePool makes the scenario's namespace and a pool of so many addresses that
// offers itself to pods there. change may be nil.
func (a *act) makePool(ctx context.Context, addresses int, change func(*v1alpha1.IPPoolSpec)) {
	a.makeNamespace(ctx)
	spec := v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: a.ips(firstHost, addresses), Default: ptr.To(true)}
	if change != nil {
		change(&spec)
	}
	a.addPool(ctx, a.namespace, spec)
}

// makeNamespace makes the scenario's namespace and waits until pods can be made there.
func (a *act) makeNamespace(ctx context.Context) {
	a.after("remove the namespace", a.removeNamespace)
	// That of an earlier run may still be on its way out.
	eventually(ctx, podLimit, "namespace "+a.namespace, func(ctx context.Context) {
		check(a.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}))
	})
	eventually(ctx, podLimit, "the default ServiceAccount of "+a.namespace, func(ctx context.Context) {
		check(a.api.Get(ctx, client.ObjectKey{Namespace: a.namespace, Name: "default"}, &corev1.ServiceAccount{}))
	})
}

// addPool makes a pool and waits until it is Ready. It serves the scenario's namespace alone, unless
// the pool names others.
func (a *act) addPool(ctx context.Context, name string, spec v1alpha1.IPPoolSpec) {
	a.after("remove pool "+name, func(ctx context.Context) { a.removePool(ctx, name) })
	if len(spec.NamespaceName) == 0 {
		spec.NamespaceName = []string{a.namespace}
	}
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	did(a.api.Create(ctx, pool), "make pool %s", name)
	a.condition(ctx, name, v1alpha1.ConditionReady)
}

// editPool changes a pool.
func (a *act) editPool(ctx context.Context, name string, change func(*v1alpha1.IPPoolSpec)) {
	pool := &v1alpha1.IPPool{}
	did(a.api.Get(ctx, client.ObjectKey{Name: name}, pool), "edit pool %s", name)
	before := pool.DeepCopy()
	change(&pool.Spec)
	did(a.api.Patch(ctx, pool, client.MergeFrom(before)), "edit pool %s", name)
}

// condition waits until a condition of the pool, as it is now, is True.
func (a *act) condition(ctx context.Context, pool, kind string) {
	eventually(ctx, podLimit, fmt.Sprintf("condition %s of pool %s", kind, pool), func(ctx context.Context) {
		p := &v1alpha1.IPPool{}
		check(a.api.Get(ctx, client.ObjectKey{Name: pool}, p))
		found := meta.FindStatusCondition(p.Status.Conditions, kind)
		if found == nil || found.Status != metav1.ConditionTrue || found.ObservedGeneration != p.Generation {
			fail("generation %d has the conditions %v", p.Generation, p.Status.Conditions)
		}
	})
}

// removeNamespace deletes the namespace and waits until its pods are gone. The namespace controller
// deletes the rest later: it begins after 5 s.
func (a *act) removeNamespace(ctx context.Context) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
	if err := a.api.Delete(ctx, namespace); !apierrors.IsConflict(err) {
		check(client.IgnoreNotFound(err))
	}
	all := []client.DeleteAllOfOption{
		client.InNamespace(a.namespace), client.GracePeriodSeconds(podGrace), client.PropagationPolicy(metav1.DeletePropagationBackground),
	}
	// Addresses that are kept for a workload end with it.
	for _, kind := range []client.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &batchv1.Job{}, &corev1.Pod{}} {
		check(a.api.DeleteAllOf(ctx, kind, all...))
	}
	a.podsEnd(ctx, cleanupLimit)
}

// podsEnd waits until the namespace has no pods.
func (a *act) podsEnd(ctx context.Context, limit time.Duration) {
	eventually(ctx, limit, "the end of the pods of "+a.namespace, func(ctx context.Context) {
		pods := a.pods(ctx)
		must(len(pods) == 0, "there are %s", names(pods))
	})
}

// removePool removes a pool after its pods are gone, with the leases that are left in it.
func (a *act) removePool(ctx context.Context, name string) {
	a.removeNamespace(ctx)
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	check(client.IgnoreNotFound(a.api.Delete(ctx, pool)))
	eventually(ctx, cleanupLimit, "the end of pool "+name, func(ctx context.Context) {
		leases := a.leases(ctx, name)
		for i := range leases {
			if leases[i].Spec.State == v1alpha1.StateBound {
				continue // its agent frees it
			}
			a.forceDelete(ctx, &leases[i])
		}
		a.isGone(ctx, pool, fmt.Sprintf("leases %v", brief(leases)))
	})
}

// isGone fails as long as the object exists.
func (a *act) isGone(ctx context.Context, object client.Object, left string) {
	err := a.api.Get(ctx, client.ObjectKeyFromObject(object), object)
	check(client.IgnoreNotFound(err))
	must(err != nil, "it still exists, with %s", left)
}
