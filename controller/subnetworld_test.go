// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/owners"
)

// subnet makes an IPSubnet.
func (w world) subnet(name, subnet string, edits ...func(*v1alpha1.IPSubnetSpec)) *v1alpha1.IPSubnet {
	w.Helper()
	s := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPSubnetSpec{Subnet: subnet}}
	for _, edit := range edits {
		edit(&s.Spec)
	}
	w.create(s)
	return s
}

// deployment makes a Deployment whose template has annotations.
func (w world) deployment(name string, replicas int32, annotations ...string) *appsv1.Deployment {
	w.Helper()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: template(name, annotations...),
		},
	}
	w.create(d)
	return d
}

// poolsOf returns the pools of an application, by name of the application.
func (w world) poolsOf(app string) []v1alpha1.IPPool {
	w.Helper()
	var pools v1alpha1.IPPoolList
	check.OK(w, w.client.List(w.ctx, &pools))
	var found []v1alpha1.IPPool
	for _, p := range pools.Items {
		if a := p.Spec.Application; a != nil && a.Name == app && p.DeletionTimestamp == nil {
			found = append(found, p)
		}
	}
	return found
}

// waitPool waits until an application has one pool that hands out a number of addresses, and returns it.
func (w world) waitPool(app string, addresses uint64) v1alpha1.IPPool {
	w.Helper()
	var pool v1alpha1.IPPool
	w.eventually(fmt.Sprintf("a pool of %s with %d addresses", app, addresses), func() error {
		pools := w.poolsOf(app)
		if len(pools) != 1 {
			return fmt.Errorf("it has %d pools", len(pools))
		}
		pool = pools[0]
		set, err := poolset.Addresses(&pool)
		return unless(err == nil && set.Len() == addresses, "it has %v without %v (%w)", pool.Spec.IPs, pool.Spec.ExcludeIPs, err)
	})
	return pool
}

// waitNoPool waits until an application has no pool.
func (w world) waitNoPool(app string) {
	w.Helper()
	w.eventually("the end of the pool of "+app, func() error {
		if pools := w.poolsOf(app); len(pools) > 0 {
			return fmt.Errorf("it has pool %s", pools[0].Name)
		}
		return nil
	})
}

// checkDisjoint reports pools of IPSubnets with common addresses, and returns their number.
func (w world) checkDisjoint() int {
	w.Helper()
	var pools v1alpha1.IPPoolList
	check.OK(w, w.client.List(w.ctx, &pools))
	owners, n := map[netip.Addr]string{}, 0
	for _, p := range pools.Items {
		if p.Spec.IPSubnet == "" {
			continue
		}
		n++
		ips := check.Value(poolset.Parse(p.Spec.IPs))(w)
		for i := range ips.Len() {
			other, ok := owners[ips.At(i)]
			check.That(w, !ok, "pools %s and %s have %s", p.Name, other, ips.At(i))
			owners[ips.At(i)] = p.Name
		}
	}
	return n
}

// waitSubnet waits until the status of an IPSubnet meets a condition.
func (w world) waitSubnet(name string, condition func(v1alpha1.IPSubnetStatus) error) {
	w.Helper()
	w.eventually("status of IPSubnet "+name, func() error {
		s := &v1alpha1.IPSubnet{}
		if err := w.client.Get(w.ctx, client.ObjectKey{Name: name}, s); err != nil {
			return err
		}
		return condition(s.Status)
	})
}

// unserved waits until an application is listed as one that lacks addresses.
func (w world) waitUnserved(subnet, app, message string) {
	w.Helper()
	w.waitSubnet(subnet, func(s v1alpha1.IPSubnetStatus) error {
		for _, u := range s.Unserved {
			if u.Name == app && strings.Contains(u.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("it lists %+v", s.Unserved)
	})
}

// calls counts the requests of a controller to the API server.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("watch") == "" {
			c.mu.Lock()
			parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/apis/"), "/")
			what := r.Method + " " + parts[min(2, len(parts)-1)]
			if strings.HasSuffix(r.URL.Path, "/status") {
				what += "/status"
			}
			c.n[what]++
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestPoolsOfOwnersOfOtherProjects gives pools to owners of other API groups. Their custom resources come
// after the controller has started.
func TestPoolsOfOwnersOfOtherProjects(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.runController(server.Admin(), policy(), clock.RealClock{})
	w.subnet("others", "10.93.0.0/24")
	check.OK(t, owners.Install(w.ctx, server.Admin(), append(owners.Machines(), owners.StatefulSets())...))
	t.Run("with a scale, the pool follows the replicas", func(t *testing.T) { scaledOwner(w.in(t)) })
	t.Run("without a scale, the number is fixed", func(t *testing.T) { unscaledOwner(w.in(t)) })
	t.Run("an owner that cannot be read stops nobody else", func(t *testing.T) { unreadOwner(w.in(t)) })
	w.checkDisjoint()
}

// unreadOwner has a scale without replicas, which the API server answers with an internal error.
func unreadOwner(w world) {
	set := owners.StatefulSet("default", "unread", 2)
	w.create(set)
	w.podOf(set, "unread-0", "+1")
	pool := w.waitPool("unread", 3)
	change(w, set, func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "spec", "replicas") })
	w.podOf(set, "unread-1", "+1")
	w.waitUnserved("others", "unread", "cannot be read now")
	w.deployment("beside", 1, "subnet", `{"ipv4":["others"]}`)
	w.waitPool("beside", 2)
	check.Equal(w, w.waitPool("unread", 3).Name, pool.Name, "the pool became")
	// Without pods, the pool of an owner that cannot be read stays as well.
	for _, name := range []string{"unread-0", "unread-1"} {
		w.remove(w.podObject("default", name, "n1"), client.GracePeriodSeconds(0))
	}
	w.barrierSubnet("others")
	w.waitPool("unread", 3)
	scale(w, set, 4)
	w.podOf(set, "unread-3", "+1")
	w.waitPool("unread", 5)
}

func scaledOwner(w world) {
	set := owners.StatefulSet("default", "kruise", 2)
	w.create(set)
	w.podOf(set, "kruise-0", "+1")
	pool := w.waitPool("kruise", 3)
	a := pool.Spec.Application
	check.That(w, a.APIGroup == "apps.kruise.io" && a.Kind == "StatefulSet", "the pool is that of %+v", a)
	scale(w, set, 4)
	last := w.podOf(set, "kruise-3", "+1")
	w.waitPool("kruise", 5)
	lease := w.bound(pool.Name, "10.93.0.5", last)
	w.waitBound(pool.Name, 1)
	scale(w, set, 0)
	w.podOf(set, "kruise-1", "+1")
	w.waitPool("kruise", 1) // the address in use

	check.OK(w, w.client.Delete(w.ctx, set))
	for _, name := range []string{"kruise-0", "kruise-1", "kruise-3"} {
		w.remove(w.podObject("default", name, "n1"), client.GracePeriodSeconds(0))
	}
	w.barrierSubnet("others")
	check.That(w, len(w.poolsOf("kruise")) == 1, "the pool of an address in use is gone")
	check.OK(w, w.client.Delete(w.ctx, lease))
	w.waitNoPool("kruise")
}

func unscaledOwner(w world) {
	flexible, fixed := owners.Instance("default", "flexible"), owners.Instance("default", "fixed")
	w.create(flexible)
	w.create(fixed)
	w.podOf(flexible, "virt-launcher-flexible", "+1")
	w.waitUnserved("others", "flexible", "give a fixed number in the annotation ippool-ip-number")
	w.waitEvent("default", "SubnetUnserved", "flexible", "ippool-ip-number")
	pod := w.podOf(fixed, "virt-launcher-fixed", "2")
	w.waitPool("fixed", 2)
	check.That(w, len(w.poolsOf("flexible")) == 0, "flexible has a pool")
	w.remove(pod, client.GracePeriodSeconds(0))
	w.waitNoPool("fixed")
}

// podOf makes a pod of an owner that asks for a pool of the IPSubnet others with so many addresses.
func (w world) podOf(o *unstructured.Unstructured, name, number string) *corev1.Pod {
	w.Helper()
	pod := w.podObject("default", name, "n1")
	pod.Annotations = template(name, "subnet", `{"ipv4":["others"]}`, "ippool-ip-number", number).Annotations
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(o, o.GroupVersionKind())}
	w.create(pod)
	return pod
}

// scale sets the replicas of an owner.
func scale(w world, o *unstructured.Unstructured, replicas int64) {
	w.Helper()
	change(w, o, func(o *unstructured.Unstructured) {
		check.OK(w, unstructured.SetNestedField(o.Object, replicas, "spec", "replicas"))
	})
}
