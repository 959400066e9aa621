// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

const chooses = v1alpha1.AnnotationPrefix + "ips"

// A StatefulSet of three has three addresses of a list, and is rolled, each pod to the other node. Then the
// pods of a Deployment of two are rolled: the new ones wait for the addresses of the old ones, in a pool with
// many free ones.
func TestPodsHaveTheAddressesOfTheirTemplateThroughARollout(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 2)
	c.StartController()
	c.Pool("v4", "10.66.0.0/24", "10.66.0.30-10.66.0.60") // so few that no node keeps any ready
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Shop, Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: "db",
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{chooses: "10.66.0.57, 10.66.0.33, 10.66.0.55"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		},
	}}
	check.OK(t, c.Create(ctx, set))
	want := []string{"10.66.0.57", "10.66.0.33", "10.66.0.55"}
	ofSet := func(pod *corev1.Pod) {
		pod.Annotations = set.Spec.Template.Annotations
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	}
	db := make([]*nodes.Sandbox, len(want))
	for i, addr := range want {
		db[i] = started(ctx, t, c.Nodes[i%2], fmt.Sprintf("db-%d", i), ofSet)
		check.Equal(t, db[i].Addr.String(), addr, "db-%d has", i)
	}
	for i := range slices.Backward(want) {
		check.OK(t, db[i].Finish(ctx))
		db[i] = started(ctx, t, c.Nodes[(i+1)%2], fmt.Sprintf("db-%d", i), ofSet)
		check.Equal(t, db[i].Addr.String(), want[i], "db-%d has on the other node", i)
	}

	ofWeb := deployed(ctx, t, c, "web", 2, map[string]string{chooses: "10.66.0.40, 10.66.0.41"})
	var old []*nodes.Sandbox
	for i, n := range c.Nodes {
		old = append(old, started(ctx, t, n, fmt.Sprintf("web-1-%d", i), ofWeb))
	}
	check.That(t, old[0].Addr != old[1].Addr, "both have %s", old[0].Addr)
	for i, n := range c.Nodes {
		next, ended := empty(ctx, t, n, fmt.Sprintf("web-2-%d", i), ofWeb), make(chan error, 1)
		go func() { ended <- next.Add(ctx) }()
		c.Eventually(t, "the new pod waits", func() error { return told(ctx, c, next.Pod.Name, "AddressAwaited") })
		started(ctx, t, n, fmt.Sprintf("other-%d", i), nil) // is not held back
		was := old[len(old)-1-i]                            // the pod of the other node
		check.OK(t, was.End(ctx))
		ends := time.Now()
		check.OK(t, <-ended)
		t.Logf("%s has %s of the other node %s after the DEL", next.Pod.Name, next.Addr, next.Since.Sub(ends).Round(time.Millisecond))
		check.Equal(t, next.Addr, was.Addr, "the new pod has")
		check.OK(t, c.ForgetPod(ctx, was.Pod))
	}
	c.Settles(ctx, t)
}

// told returns an error unless an event of a pod has the reason, and a part of its text.
func told(ctx context.Context, c *nodes.Cluster, pod, reason string, part ...string) error {
	all := &eventsv1.EventList{}
	if err := c.List(ctx, all, client.InNamespace(nodes.Shop)); err != nil {
		return err
	}
	var others []string
	for _, e := range all.Items {
		if e.Regarding.Name == pod && e.Reason == reason && strings.Contains(e.Note, strings.Join(part, "")) {
			return nil
		}
		others = append(others, e.Regarding.Name+" "+e.Reason+": "+e.Note)
	}
	return fmt.Errorf("the events are %q", others)
}

// A pod chooses an address that another node keeps Warm. The node gives it within a second, also if a
// Deployment's pod asks. If the agent of that node is away, the pod is refused, and the error says so.
func TestAnAddressThatAnotherNodeKeepsWarmIsGivenToThePodThatChoosesIt(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 2)
	c.StartController()
	pool := c.Pool("v4", "10.66.0.0/24", "10.66.0.20-10.66.0.99")
	pool.Spec.Warm, pool.Spec.Parents, pool.Spec.NodeName = ptr.To[int64](3), []string{namespaces.Parent}, []string{c.Nodes[1].Name}
	change(ctx, t, c, pool)
	asker, keeper := c.Nodes[0], c.Nodes[1]
	var stock []v1alpha1.IPLease
	c.Eventually(t, "the other node keeps addresses ready", func() (err error) {
		stock, err = keeper.Stock(ctx, pool.Name)
		if err == nil && len(stock) < 3 {
			err = fmt.Errorf("%d of them", len(stock))
		}
		return err
	})
	pool.Spec.NodeName = nil
	change(ctx, t, c, pool)
	check.OK(t, started(ctx, t, asker, "any", nil).Finish(ctx)) // its agent has the pool
	chosen := func(l v1alpha1.IPLease) string { return l.Spec.Address }
	both := deployed(ctx, t, c, "web", 1, map[string]string{chooses: chosen(stock[1])})
	for name, pod := range map[string]func(*corev1.Pod){
		chosen(stock[0]): func(p *corev1.Pod) { p.Annotations = map[string]string{chooses: chosen(stock[0])} },
		chosen(stock[1]): both,
	} {
		s := empty(ctx, t, asker, "asks-"+strings.ReplaceAll(name, ".", "-"), pod)
		began := time.Now()
		check.OK(t, s.Add(ctx))
		took := time.Since(began)
		t.Logf("%s, which %s kept Warm, after %s", s.Addr, keeper.Name, took.Round(time.Millisecond))
		check.Equal(t, s.Addr.String(), name, "the pod has")
		check.That(t, took < servedLimit, "after %s", took) // with the ADD itself, and other tests beside it
	}

	check.OK(t, keeper.KillAgent())
	s := empty(ctx, t, asker, "asks-in-vain", func(p *corev1.Pod) { p.Annotations = map[string]string{chooses: chosen(stock[2])} })
	err := s.Add(ctx)
	check.Says(t, err, chosen(stock[2]), "keeps it ready (Warm)", "start or upgrade the agent of node "+keeper.Name)
	c.Eventually(t, "the pod is told", func() error { // events follow the answer
		return told(ctx, c, s.Pod.Name, "AddressRefused", "start or upgrade the agent of node "+keeper.Name)
	})
	check.OK(t, keeper.AwaitAgent(ctx))
	check.OK(t, check.Err(asker.Begin(ctx, s.Pod)))
}

// A pod chooses the MAC beside its address. Its next sandbox, on the other node, has both again, and a neighbour reaches
// it. A pod whose pool allows no MAC is refused.
func TestAPodChoosesTheMACBesideItsAddress(t *testing.T) {
	ctx, c := cluster(t, nodes.Limit, 2)
	c.StartController()
	pool := c.FromIPPool("v4", "10.66.0.0/24", "10.66.0.30-10.66.0.60", "0a:58")
	const mac = "0a:58:00:00:00:07"
	choosing := func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{chooses: fmt.Sprintf(`[{"ips": ["10.66.0.33"], "macs": [%q]}]`, mac)}
	}
	check.OK(t, started(ctx, t, c.Nodes[0], "any", nil).Finish(ctx)) // its agent has the pool
	early := empty(ctx, t, c.Nodes[0], "early", choosing)
	check.That(t, early.Add(ctx) != nil, "a pool with macPolicy FromIP takes another MAC")
	c.Eventually(t, "the pod is told", func() error { return told(ctx, c, "early", "AddressRefused", "pool v4 takes no MAC "+mac) })
	check.OK(t, early.Finish(ctx))
	edit(ctx, t, c, pool, func() { pool.Spec.MACPolicy.Type = v1alpha1.MACChosen })
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	for i, n := range c.Nodes {
		s := started(ctx, t, n, fmt.Sprint("web-", i), choosing) // once the agent has the policy
		l := check.Value(c.Lease(ctx, s.Addr))(t)
		check.That(t, s.Addr.String() == "10.66.0.33" && s.MAC.String() == mac && l.Spec.Holder.MAC == mac, "pod %s has %s and %s, its lease %s", s.Pod.Name, s.Addr, s.MAC, l.Spec.Holder.MAC)
		c.Eventually(t, s.Pod.Name+" answers", func() error {
			out, err := host.Command(ctx, "ping", "-n", "-c", "1", "-w", "5", s.Addr.String()).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		check.OK(t, s.Finish(ctx))
	}
	c.Settles(ctx, t)
}
