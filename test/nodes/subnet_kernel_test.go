// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// An IPSubnet of three addresses grows to eight while an application of five pods waits. The pods
// then run in their first sandboxes. An address in use is removed from the IPSubnet, and its pod
// keeps it.
func TestAnIPSubnetGrowsUnderPodsThatWait(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	n, host := c.Nodes[0], c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	c.StartController()
	subnet := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: v1alpha1.IPSubnetSpec{
		Subnet: "10.66.0.0/24", IPs: []string{"10.66.0.20-10.66.0.22"},
	}}
	check.OK(t, c.Create(ctx, subnet))
	web := deployed(ctx, t, c, "web", 5, map[string]string{v1alpha1.AnnotationPrefix + "subnet": `{"ipv4":["few"]}`})

	all, ended := make([]*nodes.Sandbox, 5), make(chan error, 5)
	for i := range all {
		pod := check.Value(n.NewPod(ctx, fmt.Sprintf("web-%d", i), web))(t)
		all[i] = check.Value(n.NewSandbox(pod))(t)
		go func() { ended <- all[i].Add(ctx) }()
	}
	c.Eventually(t, "the application lacks addresses", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(subnet), subnet); err != nil || len(subnet.Status.Unserved) == 1 {
			return err
		}
		return fmt.Errorf("its status is %+v", subnet.Status)
	})
	edit(ctx, t, c, subnet, func() { subnet.Spec.IPs = []string{"10.66.0.20-10.66.0.27"} })
	for range all {
		check.OK(t, <-ended)
	}

	old := all[0]
	was := &v1alpha1.IPLease{}
	check.OK(t, c.Get(ctx, client.ObjectKey{Name: old.Addr.String()}, was))
	answered := pinged(ctx, t, host, old.Addr)
	edit(ctx, t, c, subnet, func() { subnet.Spec.ExcludeIPs = []string{old.Addr.String()} })
	pooled := func(what string, with bool) {
		c.Eventually(t, what, func() error {
			pool := &v1alpha1.IPPool{}
			if err := c.Get(ctx, client.ObjectKey{Name: was.Spec.Pool}, pool); err != nil {
				return err
			}
			set, err := poolset.Addresses(pool)
			if others := set.Minus(check.Value(poolset.Parse([]string{old.Addr.String()}))(t)); others.Len() != 6 || set.Contains(old.Addr) != with {
				err = fmt.Errorf("it has %v without %v (%w)", pool.Spec.IPs, pool.Spec.ExcludeIPs, err)
			}
			return err
		})
	}
	pooled("the pool has another address besides", true)
	started(ctx, t, n, "web-next", web)
	now := &v1alpha1.IPLease{}
	check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(was), now))
	if now.UID != was.UID || now.Spec.State != v1alpha1.StateBound || now.Spec.Holder.PodUID != string(old.Pod.UID) {
		t.Errorf("the lease of the excluded address is %+v", now)
	}
	loses(t, c, answered)
	check.OK(t, old.Finish(ctx))
	pooled("the pool gives the address back with the pod", false)
	for _, s := range c.Living() {
		check.OK(t, s.Finish(ctx))
	}
	c.Settles(ctx, t)
}

// The gateway and routes of a pool, or of its IPSubnet, change while it has pods. Then the agent is
// killed. New pods have the new routes, and old pods the old ones.
func TestOldPodsKeepTheRoutesOfTheirPool(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	n := c.Nodes[0]
	c.StartController()
	subnet := &v1alpha1.IPSubnet{ObjectMeta: metav1.ObjectMeta{Name: "edited"}, Spec: v1alpha1.IPSubnetSpec{
		Subnet: "10.66.0.0/24", IPs: []string{"10.66.0.20-10.66.0.29"}, Gateway: ptr.To("10.66.0.1"),
	}}
	check.OK(t, c.Create(ctx, subnet))
	pool := c.NamedPool("drawn", "10.66.0.0/24", "10.66.0.40-10.66.0.49")
	edit(ctx, t, c, pool, func() { pool.Spec.Gateway = ptr.To("10.66.0.1") })
	routes := []v1alpha1.Route{{Dst: "172.30.0.0/16", Gw: "10.66.0.3"}}
	want := func(gateway string, more ...string) []string {
		all := append([]string{"10.66.0.0/24 ", "default " + gateway}, more...)
		slices.Sort(all)
		return all
	}
	for _, row := range []struct {
		name string
		of   func(*corev1.Pod)
		edit func()
	}{
		{"a pool", nodes.Wants(pool.Name), func() {
			edit(ctx, t, c, pool, func() { pool.Spec.Gateway, pool.Spec.Routes = ptr.To("10.66.0.2"), routes })
		}},
		{"an IPSubnet", deployed(ctx, t, c, "web", 3, map[string]string{v1alpha1.AnnotationPrefix + "subnet": `{"ipv4":["edited"]}`}), func() {
			edit(ctx, t, c, subnet, func() { subnet.Spec.Gateway, subnet.Spec.Routes = ptr.To("10.66.0.2"), routes })
		}},
	} {
		name := strings.ToLower(strings.Fields(row.name)[1])
		old := routed(ctx, t, n, name+"-old", row.of)
		if diff := cmp.Diff(want("10.66.0.1"), routesOf(t, old)); diff != "" {
			t.Errorf("%s: the first pod (-want +got):\n%s", row.name, diff)
		}
		row.edit()
		var next *nodes.Sandbox
		c.Eventually(t, row.name+": a new pod has the new routes", func() error {
			if next != nil {
				check.OK(t, next.Finish(ctx))
			}
			next = routed(ctx, t, n, name+"-new", row.of)
			if diff := cmp.Diff(want("10.66.0.2", "172.30.0.0/16 10.66.0.3"), routesOf(t, next)); diff != "" {
				return errors.New(diff)
			}
			return nil
		})
		check.OK(t, errors.Join(n.KillAgent(), n.StartAgent(), n.AwaitAgent(ctx)))
		later := routed(ctx, t, n, name+"-later", row.of)
		for of, s := range map[string]*nodes.Sandbox{"10.66.0.1": old, "10.66.0.2": later} {
			expected := want(of)
			if s == later {
				expected = want(of, "172.30.0.0/16 10.66.0.3")
			}
			if diff := cmp.Diff(expected, routesOf(t, s)); diff != "" {
				t.Errorf("%s: pod %s after the agent was killed (-want +got):\n%s", row.name, s.Pod.Name, diff)
			}
		}
	}
}

// routed starts a pod in whose network Fenceline is also chained behind the plugin.
func routed(ctx context.Context, t *testing.T, n *nodes.Node, name string, change func(*corev1.Pod)) *nodes.Sandbox {
	t.Helper()
	pod := check.Value(n.NewPod(ctx, name, change))(t)
	s := check.Value(n.NewSandboxOf(pod, fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"underlay","plugins":[{
		"type":"macvlan","master":%q,"mode":"bridge","ipam":%s},%s]}`, namespaces.Parent, n.IPAM(), n.Chained()), nil))(t)
	check.OK(t, s.Add(ctx))
	return s
}

// routesOf returns the routes of the underlay in a pod: the destination and the gateway of each.
func routesOf(t *testing.T, s *nodes.Sandbox) (all []string) {
	t.Helper()
	link := check.Value(s.Links().LinkByName(namespaces.PodInterface))(t)
	for _, r := range check.Value(s.Links().RouteList(link, netlink.FAMILY_V4))(t) {
		dst, via := "default", ""
		if r.Dst != nil && r.Dst.String() != "0.0.0.0/0" {
			dst = r.Dst.String()
		}
		if r.Gw != nil {
			via = r.Gw.String()
		}
		all = append(all, dst+" "+via)
	}
	slices.Sort(all)
	return all
}

// deployed makes a Deployment whose pods have annotations. The result makes a pod belong to it.
func deployed(ctx context.Context, t *testing.T, c *nodes.Cluster, name string, replicas int32, annotations map[string]string) func(*corev1.Pod) {
	t.Helper()
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "none"}},
	}}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Shop, Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template}}
	check.OK(t, c.Create(ctx, d))
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Shop, Name: name + "-1"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector, Template: template}}
	set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
	check.OK(t, c.Create(ctx, set))
	return func(pod *corev1.Pod) {
		pod.Annotations, pod.Labels = annotations, labels
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
}

// edit changes an object as a person does.
func edit(ctx context.Context, t *testing.T, c *nodes.Cluster, o client.Object, change func()) {
	t.Helper()
	check.OK(t, c.Get(ctx, client.ObjectKeyFromObject(o), o))
	before := o.DeepCopyObject().(client.Object)
	change()
	check.OK(t, c.Patch(ctx, o, client.MergeFrom(before)))
}

// loses fails the test if a ping was lost so far or among the next 20.
func loses(t *testing.T, c *nodes.Cluster, answered func() []int) {
	t.Helper()
	before := len(answered())
	var got []int
	c.Eventually(t, "20 more pings are answered", func() error {
		if got = answered(); len(got) < before+20 {
			return fmt.Errorf("%d are, and %d were before", len(got), before)
		}
		return nil
	})
	if lost := got[len(got)-1] - len(got); lost > 0 {
		t.Errorf("%d pings were lost", lost)
	}
}
