// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/vf"
)

// A pod of a StatefulSet has on a VF all that it has on a macvlan: a Warm address, a host link, audit lines, and
// its address on the next node. In the end, it takes its address over from a zombie.
func TestGuestAPodOnAVFHasWhatAMacvlanPodHas(t *testing.T) {
	c := vf.New(t, 1)
	host := c.LAN.Hosts[0]
	// The host reaches no subnet of a pod by these.
	for _, own := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		check.OK(t, host.AddAddr(namespaces.Parent, netip.MustParsePrefix(own)))
	}
	c.StartController()
	for _, f := range families() {
		t.Run(f.name, func(t *testing.T) {
			p, light, dark := podsOf(c, vf.SRIOV, vf.Chained), c.Nodes[0], c.Nodes[1]
			pool := &v1alpha1.IPPool{}
			check.OK(t, c.Get(t.Context(), client.ObjectKey{Name: f.pool(c, 20, 29)}, pool))
			before := pool.DeepCopy()
			pool.Spec.Warm, pool.Spec.Parents = ptr.To[int64](1), []string{namespaces.Parent}
			check.OK(t, c.Patch(t.Context(), pool, client.MergeFrom(before)))
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Shop, Name: "web-" + f.name}, Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": f.name}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": f.name}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
				},
			}}
			check.OK(t, c.Create(t.Context(), set))
			web := func(pod *corev1.Pod) {
				f.wants(pool.Name)(pod)
				pod.Name = set.Name + "-0"
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID, Controller: ptr.To(true)}}
			}
			audited := func(n *nodes.Node, kind string, of *nodes.Sandbox) {
				t.Helper()
				if !check.Value(n.Said("audit", kind, of.Addr.String(), of.MAC.String()))(t) {
					t.Errorf("%s has no audit line %s of %s with %s", n.Name, kind, of.Addr, of.MAC)
				}
			}

			check.Eventually(t, nodes.Limit, "a Warm address", func() error {
				ready, err := light.Ready(t.Context(), pool.Name)
				if err == nil && ready != 1 {
					err = fmt.Errorf("%d are ready", ready)
				}
				return err
			})
			stock := check.Value(light.Stock(t.Context(), pool.Name))(t)
			first := p.begin(t, 1, 0, web)
			if !slices.ContainsFunc(stock, func(l v1alpha1.IPLease) bool {
				return l.Spec.NodeName == light.Name && l.Spec.Address == first.Addr.String()
			}) {
				t.Errorf("the pod has %s, which was not Warm on %s: %v", first.Addr, light.Name, stock)
			}
			check.Eventually(t, limit, "a connection over the host link", func() error {
				return vf.Reach(host.Namespace, first.Namespace, first.Addr)
			})
			audited(light, `"grant"`, first)
			p.end(t, first)
			audited(light, `"free"`, first)

			zombie := p.begin(t, 2, 0, web)
			check.That(t, zombie.Addr == first.Addr, "the next pod of the name has %s, want %s", zombie.Addr, first.Addr)
			dark.ShutAPI(true)
			check.OK(t, errors.Join(dark.Fall(t.Context()), zombie.Outlive(t.Context())))
			last := p.begin(t, 1, 0, web)
			check.That(t, last.Addr == zombie.Addr, "the pod that takes over has %s, want %s", last.Addr, zombie.Addr)
			audited(light, `"fence"`, last)
			check.Eventually(t, limit, "a connection over the host link", func() error {
				return vf.Reach(host.Namespace, last.Namespace, last.Addr)
			})

			dark.ShutAPI(false)
			check.OK(t, errors.Join(dark.Rise(t.Context()), zombie.Del(t.Context()), p.takeBack(zombie)))
			p.end(t, last)
		})
	}
}
