// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/owners"
)

// Two StatefulSets of one name in two namespaces share a pool and a node. A pod of one is deleted by
// force while its sandbox lives on. Its address is taken, and the other pod loses no ping.
func TestPodsOfOneNameInTwoNamespacesDoNotMeet(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 2)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.20-10.66.0.29")
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	c.StartController()
	begin(ctx, t, c, crowd(t, c, "heard", 2)) // so that the silence of others counts
	check.OK(t, c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}))
	var pods []*nodes.Sandbox
	for _, namespace := range []string{nodes.Shop, "other"} {
		set := setOf("web", 1)
		set.Namespace = namespace
		check.OK(t, c.Create(ctx, set))
		pods = append(pods, started(ctx, t, c.Nodes[0], "web-0", func(pod *corev1.Pod) {
			pod.Namespace = namespace
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		}))
	}
	forced, stays := pods[0], pods[1]
	was := &v1alpha1.IPLease{}
	check.OK(t, c.Get(ctx, client.ObjectKey{Name: stays.Addr.String()}, was))
	answered := pinged(ctx, t, host, stays.Addr)

	check.OK(t, c.ForgetPod(ctx, forced.Pod))
	forced.Abandon()
	next := started(ctx, t, c.Nodes[1], "web-0", func(pod *corev1.Pod) { pod.OwnerReferences = forced.Pod.OwnerReferences })
	check.Equal(t, next.Addr, forced.Addr, "the next pod of the name has")
	check.OK(t, forced.End(ctx))
	loses(t, c, answered)
	now := &v1alpha1.IPLease{}
	check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(was), now))
	check.That(t, now.ResourceVersion == was.ResourceVersion, "the lease of the other pod was written: %+v", now.Spec)
	c.Settles(ctx, t)
}

// The entries of ippools have no names, so they belong to the interfaces by order. One entry changes:
// its interface gets an address of the other pool, and the other interface keeps its address.
func TestAnEntryWithoutANameChangesForItsInterfaceOnly(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 2)
	for i, name := range []string{"first", "second", "third"} {
		subnet := fmt.Sprintf("10.6%d.0.", 6+i)
		c.NamedPool(name, subnet+"0/24", subnet+"2-"+subnet+"5")
	}
	c.StartController()
	set := setOf("web", 1)
	check.OK(t, c.Create(ctx, set))
	p := &twoInterfaces{Cluster: c, on: c.Nodes[0], set: set}
	var was [2]netip.Addr
	for i, row := range []struct{ entries, first, second string }{
		{`[{"ipv4":["first"]},{"ipv4":["second"]}]`, "10.66.0.0/24", "10.67.0.0/24"},
		{`[{"ipv4":["first"]},{"ipv4":["third"]}]`, "10.66.0.0/24", "10.68.0.0/24"},
		{`[{"ipv4":["second"]},{"ipv4":["third"]}]`, "10.67.0.0/24", "10.68.0.0/24"},
	} {
		p.on, p.pools = c.Nodes[i%2], row.entries
		check.OK(t, p.start(ctx, func() error { return nil }))
		is := p.addresses()
		for k, subnet := range []string{row.first, row.second} {
			within := netip.MustParsePrefix(subnet)
			if !within.Contains(is[k]) || within.Contains(was[k]) && is[k] != was[k] {
				t.Errorf("with %s, interface %d has %s after %s, want one of %s", row.entries, k, is[k], was[k], subnet)
			}
		}
		was = is
		c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
		check.OK(t, p.stop(ctx, func() error { return nil }))
	}
	check.OK(t, c.Delete(ctx, set))
	c.Settles(ctx, t)
}

// scalable is an application and its pods.
type scalable struct {
	object client.Object
	kind   schema.GroupVersionKind
	pods   []*nodes.Sandbox
	made   int
}

// scale writes the replicas, and makes or ends the pods as the application's controller does.
func (a *scalable) scale(ctx context.Context, c *nodes.Cluster, replicas int) error {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := c.Patch(ctx, a.object, patch); err != nil {
		return err
	}
	for len(a.pods) > replicas {
		last := a.pods[len(a.pods)-1]
		a.pods = a.pods[:len(a.pods)-1]
		if err := last.Finish(ctx); err != nil {
			return err
		}
	}
	for len(a.pods) < replicas {
		number := len(a.pods)
		if a.kind.Kind == "Deployment" {
			number = a.made // another name for each pod
		}
		a.made++
		n := c.Nodes[rand.IntN(len(c.Nodes))]
		pod, err := n.NewPod(ctx, fmt.Sprintf("%s-%d", a.object.GetName(), number), func(pod *corev1.Pod) {
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(a.object, a.kind)}
		})
		if err != nil {
			return err
		}
		s, err := n.Begin(ctx, pod)
		if err != nil {
			return err
		}
		a.pods = append(a.pods, s)
	}
	return nil
}

// Six applications share a pool of 18 addresses. They scale at random, up to the whole pool, while
// the controller is killed. The leases are those of the pods, and none is left at the end.
func TestApplicationsThatScaleAtRandomShareAPool(t *testing.T) {
	ctx, c := cluster(t, 4*nodes.Limit, 3)
	c.Pool("v4", "10.66.0.0/24", "10.66.0.20-10.66.0.37")
	check.OK(t, owners.Install(ctx, c.Server.Admin(), owners.StatefulSets()))
	c.StartController()
	var all []*scalable
	for _, n := range []string{"1", "2"} {
		foreign := owners.StatefulSet(nodes.Shop, "foreign"+n, 0)
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Shop, Name: "web" + n}}
		like := setOf("web"+n, 0).Spec
		deployment.Spec = appsv1.DeploymentSpec{Replicas: like.Replicas, Selector: like.Selector, Template: like.Template}
		set := setOf("db"+n, 0)
		for _, o := range []client.Object{foreign, deployment, set} {
			check.OK(t, c.Create(ctx, o))
		}
		all = append(all, &scalable{object: foreign, kind: foreign.GroupVersionKind()},
			&scalable{object: deployment, kind: appsv1.SchemeGroupVersion.WithKind("Deployment")},
			&scalable{object: set, kind: appsv1.SchemeGroupVersion.WithKind("StatefulSet")})
	}
	for round := range 4 {
		var g errgroup.Group
		for _, a := range all {
			replicas := rand.IntN(4)
			if round == 3 {
				replicas = 0
			}
			g.Go(func() error { return a.scale(ctx, c, replicas) })
		}
		check.OK(t, errors.Join(c.KillController(), c.Revive()))
		check.OK(t, g.Wait())
		c.Eventually(t, fmt.Sprintf("the leases are those of the pods in round %d", round), func() error { return c.LeasesAreLiving(ctx) })
	}
	check.OK(t, c.SpeakersAreHolders())
}
