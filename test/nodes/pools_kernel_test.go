// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// A pod has an address of the first of two pools. The pool is disabled, gets other addresses, and is
// deleted. In between, the agent is killed. The pod keeps its lease and loses no ping. New pods get
// an address of the pool that serves them at that time.
func TestAPodKeepsItsAddressWhateverBecomesOfItsPool(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	n, host := c.Nodes[0], c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	primary := c.NamedPool("primary", "10.66.0.0/24", "10.66.0.20-10.66.0.49")
	c.NamedPool("backup", "10.66.0.0/24", "10.66.0.100-10.66.0.109")
	c.StartController()
	both := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{v1alpha1.AnnotationPrefix + "ippool": `{"ipv4":["primary","backup"]}`}
	}
	old := started(ctx, t, n, "old", both)
	was := check.Value(c.Lease(ctx, old.Addr))(t)
	check.Equal(t, was.Spec.Pool, primary.Name, "the pod names %s first, and has an address of", primary.Name)
	answered := pinged(ctx, t, host, old.Addr)

	for i, step := range []struct {
		name   string
		change func()
		serves string // the prefix of the addresses of new pods
	}{
		{"disabled", func() {
			primary.Spec.Disable = ptr.To(true)
			change(ctx, t, c, primary)
		}, "10.66.0.10"},
		{"enabled with other addresses", func() {
			primary.Spec.Disable, primary.Spec.IPs = nil, []string{"10.66.0.50-10.66.0.59"}
			change(ctx, t, c, primary)
			c.Eventually(t, "the pool names the lease outside", func() error {
				if err := c.Get(ctx, client.ObjectKeyFromObject(primary), primary); err != nil {
					return err
				}
				if !meta.IsStatusConditionTrue(primary.Status.Conditions, v1alpha1.ConditionOutside) {
					return fmt.Errorf("its conditions are %+v", primary.Status.Conditions)
				}
				return nil
			})
		}, "10.66.0.5"},
		{"served by another agent", func() {
			check.OK(t, errors.Join(n.KillAgent(), n.AwaitAgent(ctx)))
		}, "10.66.0.5"},
		{"deleted", func() { check.OK(t, c.Delete(ctx, primary)) }, "10.66.0.10"},
	} {
		step.change()
		// The agent may see the change a moment later. Freed addresses cool down, so more tries would
		// empty a pool that serves by mistake.
		for tries := 0; ; tries++ {
			next := started(ctx, t, n, fmt.Sprintf("new-%d-%d", i, tries), both)
			if strings.HasPrefix(next.Addr.String(), step.serves) {
				break
			}
			check.Must(t, tries != 7, "the pool is %s: a new pod has %s, want %s", step.name, next.Addr, step.serves)
			check.OK(t, next.Finish(ctx))
		}
		isKept(ctx, t, c, old, was, "the pool is "+step.name)
	}
	loses(t, c, answered)
	speakers := capture.Speakers(c.Frames.Frames(), old.Addr)
	check.That(t, slices.Equal(speakers, []string{old.MAC.String()}), "%v speak for the address of the old pod", speakers)
	for _, s := range c.Living() {
		check.OK(t, s.Finish(ctx))
	}
	c.Eventually(t, "the deleted pool is gone, and no lease is left", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(primary), primary); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it has the status %+v: %w", primary.Status, err)
		}
		return c.LeasesAreLiving(ctx)
	})
}

// isKept fails the test unless a pod has the same lease as before.
func isKept(ctx context.Context, t *testing.T, c *nodes.Cluster, s *nodes.Sandbox, was *v1alpha1.IPLease, what string) {
	t.Helper()
	now := check.Value(c.Lease(ctx, s.Addr))(t)
	if now.UID != was.UID || now.Spec.State != v1alpha1.StateBound || now.Spec.Holder.PodUID != string(s.Pod.UID) {
		t.Errorf("%s, and the lease of pod %s is %+v", what, s.Pod.Name, now)
	}
}

// pinged pings an address from a host until the test ends. answered returns the numbers of the
// answered pings, from 1 on.
func pinged(ctx context.Context, t *testing.T, host *namespaces.Host, addr netip.Addr) (answered func() []int) {
	t.Helper()
	file := check.Value(os.Create(filepath.Join(t.TempDir(), "ping")))(t)
	ctx, cancel := context.WithCancel(ctx)
	ping := host.Command(ctx, "ping", "-n", "-i", "0.05", addr.String())
	ping.Stdout = file
	check.OK(t, ping.Start())
	t.Cleanup(func() {
		cancel()
		_ = ping.Wait() // it was killed
		check.OK(t, file.Close())
	})
	number := regexp.MustCompile(`icmp_seq=(\d+) ttl`)
	return func() (all []int) {
		data := check.Value(os.ReadFile(file.Name()))(t)
		for _, m := range number.FindAllSubmatch(data, -1) {
			n := check.Value(strconv.Atoi(string(m[1])))(t)
			all = append(all, n)
		}
		return all
	}
}

// No node announces a load balancer without a pod, so a probe finds nobody. A pod that finds no other address waits
// until the Service is gone.
func TestNoPodGetsTheAddressOfALoadBalancer(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 1)
	n := c.Nodes[0]
	c.StartController()
	balancer := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Shop, Name: "balanced"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	check.OK(t, c.Create(ctx, balancer))
	for host := range 15 {
		balancer.Status.LoadBalancer.Ingress = append(balancer.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprintf("10.66.0.%d", 2+host)})
	}
	check.OK(t, c.Status().Update(ctx, balancer))
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.17")
	check.OK(t, errors.Join(n.KillAgent(), n.StartAgent(), n.AwaitAgent(ctx))) // it has read the Services
	// Another machine announces one of them, as the speaker of MetalLB does.
	speaker := c.Host(netip.MustParsePrefix("10.66.0.5/24"))
	check.OK(t, speaker.Command(ctx, "arping", "-U", "-c", "2", "-w", "3", "-I", namespaces.HostInterface, "10.66.0.5").Run())
	check.Equal(t, started(ctx, t, n, "web", nil).Addr.String(), "10.66.0.17", "the pod has")
	more, ended := empty(ctx, t, n, "more", nil), make(chan error, 1)
	go func() { ended <- more.Add(ctx) }()
	c.Eventually(t, "the next pod waits", func() error { return told(ctx, c, "more", "AddressAwaited", "it is exhausted") })
	conflicts, err := n.Sum(ctx, "fenceline_conflicts_total", nil)
	check.That(t, err == nil && conflicts == 0, "%v conflicts with the speaker, %v", conflicts, err)
	check.OK(t, errors.Join(speaker.Unplug(), c.Delete(ctx, balancer)))
	gone := time.Now()
	check.OK(t, <-ended)
	t.Logf("the pod has %s %s after the Service is gone", more.Addr, more.Since.Sub(gone).Round(time.Millisecond))
	c.Settles(ctx, t)
}

// An IPSubnet of three addresses grows to eight while an application of five pods waits. The pods then
// run in their first sandboxes. An address in use is removed from the IPSubnet, and its pod keeps it.
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
		all[i] = empty(ctx, t, n, fmt.Sprintf("web-%d", i), web)
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
	was := check.Value(c.Lease(ctx, old.Addr))(t)
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
	isKept(ctx, t, c, old, was, "its address is excluded")
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
	check.OK(t, started(ctx, t, n, "any", nodes.Wants(pool.Name)).Finish(ctx)) // the agent has the pool
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
		// The agent may see an edit a moment later.
		begins := func(pod string, want []string) (s *nodes.Sandbox) {
			c.Eventually(t, row.name+": the routes of a new pod", func() error {
				if s != nil {
					check.OK(t, s.Finish(ctx))
				}
				s = routed(ctx, t, n, pod, row.of)
				if diff := cmp.Diff(want, routesOf(t, s)); diff != "" {
					return errors.New(diff)
				}
				return nil
			})
			return s
		}
		old := begins(name+"-old", want("10.66.0.1"))
		row.edit()
		begins(name+"-new", want("10.66.0.2", "172.30.0.0/16 10.66.0.3"))
		check.OK(t, errors.Join(n.KillAgent(), n.AwaitAgent(ctx)))
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
		set := webSet()
		set.Namespace = namespace
		check.OK(t, c.Create(ctx, set))
		pods = append(pods, started(ctx, t, c.Nodes[0], "web-0", func(pod *corev1.Pod) {
			pod.Namespace = namespace
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
		}))
	}
	forced, stays := pods[0], pods[1]
	was := check.Value(c.Lease(ctx, stays.Addr))(t)
	answered := pinged(ctx, t, host, stays.Addr)

	check.OK(t, forced.Outlive(ctx))
	next := started(ctx, t, c.Nodes[1], "web-0", func(pod *corev1.Pod) { pod.OwnerReferences = forced.Pod.OwnerReferences })
	check.Equal(t, next.Addr, forced.Addr, "the next pod of the name has")
	check.OK(t, forced.End(ctx))
	loses(t, c, answered)
	now := check.Value(c.Lease(ctx, stays.Addr))(t)
	check.That(t, now.ResourceVersion == was.ResourceVersion, "the lease of the other pod was written: %+v", now.Spec)
	c.Settles(ctx, t)
}
