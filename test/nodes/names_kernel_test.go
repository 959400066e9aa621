// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/namespaces"
	"github.com/fenceline/fenceline/test/nodes"
)

// Each rack has a pool. A StatefulSet's pod keeps its address while it stays on its rack, even if
// the default pool changes, unless the pod itself names another pool. On the other rack it gets an
// address of that rack's pool. The old address is not free before its last holder is proven silent.
func TestANameLeavesTheAddressThatCannotLiveOnItsNode(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	racks := []*v1alpha1.IPPool{
		c.Pool("rack-1", "10.66.0.0/24", "10.66.0.2-10.66.0.9"), c.Pool("rack-2", "10.66.0.0/24", "10.66.0.20-10.66.0.29"),
	}
	c.NamedPool("own", "10.66.0.0/24", "10.66.0.40")
	w := &name{Cluster: c, t: t, ctx: ctx}
	w.edit(racks[0], func(s *v1alpha1.IPPoolSpec) {
		s.NodeName, s.Parents = []string{c.Nodes[0].Name}, []string{namespaces.Parent}
	})
	w.edit(racks[1], func(s *v1alpha1.IPPoolSpec) {
		s.NodeName, s.Parents = []string{c.Nodes[1].Name, c.Nodes[2].Name}, []string{namespaces.Parent}
	})
	check.OK(t, c.Create(ctx, webSet()))
	c.StartController()
	dark, light := c.Nodes[0], c.Nodes[1]
	begin(ctx, t, c, crowd(t, c, "heard", len(c.Nodes))[1:]) // so that the silence of others counts

	first := w.begin(dark)
	w.edit(racks[0], func(s *v1alpha1.IPPoolSpec) { s.Default = nil })
	w.end(first)
	second := w.begin(dark)
	check.Equal(t, second.Addr, first.Addr, "spec.default has moved: web-0 had %s and has", first.Addr)
	w.edit(racks[0], func(s *v1alpha1.IPPoolSpec) { s.Default = ptr.To(true) })

	// The pod names another pool, then none, then the pool of its rack.
	w.end(second)
	moved := w.begin(dark, nodes.Wants("own"))
	w.told(moved, moved.Addr.String()+" replaces "+second.Addr.String())
	c.Eventually(t, "the address that the pod has left is free", func() error { return w.isFree(second) })
	w.end(moved)
	still := w.begin(dark)
	if moved.Addr.String() != "10.66.0.40" || still.Addr != moved.Addr {
		t.Errorf("web-0 names pool own and has %s; then it names none and has %s", moved.Addr, still.Addr)
	}
	w.end(still)
	second = w.begin(dark, nodes.Wants("rack-1"))

	// The node of the first rack loses its power.
	check.OK(t, errors.Join(dark.CutUnderlay(), dark.Fall(ctx), second.Remove(), second.Outlive(ctx)))
	third := w.begin(light)
	check.That(t, strings.HasPrefix(third.Addr.String(), "10.66.0.2") && third.Addr != second.Addr, "web-0 has %s on the second rack", third.Addr)
	w.told(third, fmt.Sprintf("%s replaces %s: pool rack-1 does not serve the pod on node %s", third.Addr, second.Addr, light.Name))
	c.Eventually(t, "the address of the first rack is free", func() error { return w.isFree(second) })

	// It comes back.
	check.OK(t, errors.Join(dark.HealUnderlay(), dark.Rise(ctx)))
	w.end(third)
	fourth := w.begin(dark)
	w.told(fourth, fmt.Sprintf("%s replaces %s: pool rack-2 does not serve the pod on node %s", fourth.Addr, third.Addr, dark.Name))
	c.Settles(ctx, t)
}

// name starts the pods of StatefulSet web, one after the other.
type name struct {
	*nodes.Cluster
	t   *testing.T
	ctx context.Context
}

// webSet is the StatefulSet web, of one pod.
func webSet() *appsv1.StatefulSet {
	labels := map[string]string{"app": "web"}
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: nodes.Shop, Name: "web"}, Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		},
	}}
}

// begin makes the pod and its sandbox on a node.
func (w *name) begin(n *nodes.Node, change ...func(*corev1.Pod)) *nodes.Sandbox {
	w.t.Helper()
	return started(w.ctx, w.t, n, "web-0", func(pod *corev1.Pod) {
		for _, c := range append(change, webOf("u")) {
			c(pod)
		}
	})
}

// webOf makes a pod belong to the StatefulSet web with this UID.
func webOf(uid types.UID) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: uid, Controller: ptr.To(true)}}
	}
}

// end ends the pod as a kubelet does.
func (w *name) end(s *nodes.Sandbox) {
	w.t.Helper()
	check.OK(w.t, s.Finish(w.ctx))
}

// edit changes a pool. The agents see it within milliseconds.
func (w *name) edit(pool *v1alpha1.IPPool, change func(*v1alpha1.IPPoolSpec)) {
	w.t.Helper()
	w.Eventually(w.t, "pool "+pool.Name+" is changed", func() error {
		if err := w.Get(w.ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return err
		}
		change(&pool.Spec)
		return w.Update(w.ctx, pool)
	})
}

// told waits for the event AddressLeft about a pod.
func (w *name) told(s *nodes.Sandbox, text string) {
	w.t.Helper()
	w.Eventually(w.t, "event "+text, func() error {
		all := &eventsv1.EventList{}
		if err := w.List(w.ctx, all, client.InNamespace(nodes.Shop)); err != nil {
			return err
		}
		var notes []string
		for _, e := range all.Items {
			if e.Reason == "AddressLeft" && e.Regarding.UID == s.Pod.UID {
				notes = append(notes, e.Note)
			}
		}
		if !strings.Contains(strings.Join(notes, "\n"), text) {
			return fmt.Errorf("the events are %q", notes)
		}
		return nil
	})
}

// isFree returns an error while the address of a sandbox has a lease.
func (w *name) isFree(s *nodes.Sandbox) error {
	l, err := w.Lease(w.ctx, s.Addr)
	if err == nil {
		return fmt.Errorf("lease %s is %s %s: %s", l.Name, l.Spec.State, l.Spec.Reason, l.Spec.Message)
	}
	return client.IgnoreNotFound(err)
}

// The sandboxes of two pods die while the pods live. One has a MAC from its plugin, the other a MAC
// from its address. The kubelet sends the DEL of the dead sandbox before or after the ADD of the next
// one, or the agent is replaced in between. In some rows the API server is away meanwhile. Each pod gets its
// address back. Its lease ends with it.
func TestAPodKeepsItsAddressWhenItsSandboxDies(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	c.Pool("plugin", "10.66.0.0/24", "10.66.0.2-10.66.0.9")
	c.FromIPPool("address", "10.66.0.0/24", "10.66.0.12-10.66.0.19", "0a:58")
	c.StartController()
	n, host := c.Nodes[0], c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	pods := map[string]*nodes.Sandbox{}
	for _, pool := range []string{"plugin", "address"} {
		pods[pool] = started(ctx, t, n, pool, func(pod *corev1.Pod) {
			nodes.Wants(pool)(pod)
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: ptr.To(true)}}
		})
	}
	if mac := pods["address"].MAC.String(); mac != fromAddress(pods["address"].Addr).String() {
		t.Errorf("the pod with a MAC of its address %s has %s", pods["address"].Addr, mac)
	}
	delThenAdd := func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
		check.OK(t, was.End(ctx))
		return n.Begin(ctx, was.Pod)
	}
	anotherAgent := func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
		check.OK(t, errors.Join(was.End(ctx), n.KillAgent(), n.AwaitAgent(ctx)))
		return n.Begin(ctx, was.Pod)
	}
	// without calls next while the API server is away.
	without := func(cut func(bool), next func(*nodes.Sandbox) (*nodes.Sandbox, error)) func(*nodes.Sandbox) (*nodes.Sandbox, error) {
		return func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
			cut(true)
			defer cut(false)
			since := time.Now()
			is, err := next(was)
			t.Logf("without the API server, pod %s had its address again after %s", was.Pod.Name, time.Since(since).Round(time.Millisecond))
			return is, err
		}
	}
	for _, order := range []struct {
		name string
		next func(was *nodes.Sandbox) (*nodes.Sandbox, error)
	}{
		{"no API server: DEL, then ADD", without(n.ShutAPI, delThenAdd)},
		{"no answer of the API server: DEL, then ADD", without(n.SilenceAPI, delThenAdd)},
		{"no API server: DEL, a killed agent, then ADD", without(n.ShutAPI, anotherAgent)},
		{"no answer of the API server: DEL, a killed agent, then ADD", without(n.SilenceAPI, anotherAgent)},
		{"no API server: ADD, then DEL", without(n.ShutAPI, func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
			was.Abandon()
			next, err := n.Begin(ctx, was.Pod)
			return next, errors.Join(err, was.End(ctx))
		})},
		{"DEL, then ADD", delThenAdd},
		{"ADD, then DEL", func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
			was.Abandon()
			next, err := n.Begin(ctx, was.Pod)
			return next, errors.Join(err, was.End(ctx))
		}},
		{"DEL, another agent, then ADD", func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
			check.OK(t, errors.Join(was.End(ctx), n.StopAgent(), n.AwaitAgent(ctx)))
			return n.Begin(ctx, was.Pod)
		}},
		// The last one: no controller answers the agent from now on.
		{"no API server for the node, and no controller: DEL, a killed agent, then ADD", without(n.ShutAPI, func(was *nodes.Sandbox) (*nodes.Sandbox, error) {
			check.OK(t, c.KillController())
			return anotherAgent(was)
		})},
	} {
		for pool, was := range pods {
			is := check.Value(order.next(was))(t)
			check.Equal(t, is.Addr, was.Addr, "%s: the pod of pool %s had %s and has", order.name, pool, was.Addr)
			c.Eventually(t, order.name+": the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
			// One ping with a deadline ends early if ARP is lost for three seconds.
			c.Eventually(t, order.name+": "+is.Addr.String()+" answers", func() error {
				return host.Command(ctx, "ping", "-q", "-c", "1", "-W", "1", is.Addr.String()).Run()
			})
			pods[pool] = is
		}
	}
	for _, s := range pods {
		check.OK(t, s.Finish(ctx))
	}
	c.Settles(ctx, t)
}

// The MAC moves with the address of a StatefulSet's pod: first to another node, then by force away
// from a zombie. A host that never updates its neighbour entry still reaches the pod. The kernel of
// the zombie, which has the same MAC, acknowledges the claim.
func TestTheMACMovesWithTheAddressOfAName(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 3)
	c.FromIPPool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.9", "0a:58")
	check.OK(t, c.Create(ctx, webSet()))
	c.StartController()
	host := c.Host(netip.MustParsePrefix("10.66.0.1/24"))
	w := &name{Cluster: c, t: t, ctx: ctx}

	first := w.begin(c.Nodes[0])
	mac := fromAddress(first.Addr)
	check.OK(t, host.Command(ctx, "ip", "neigh", "replace", first.Addr.String(), "lladdr", mac.String(), "nud", "permanent", "dev", namespaces.HostInterface).Run())
	reached := func(s *nodes.Sandbox) {
		t.Helper()
		check.That(t, s.Addr == first.Addr && s.MAC.String() == mac.String(), "web-0 had %s with %s, and has %s with %s", first.Addr, mac, s.Addr, s.MAC)
		l := check.Value(c.Lease(ctx, s.Addr))(t)
		if l.Spec.Holder == nil || l.Spec.Holder.MAC != mac.String() {
			t.Errorf("the lease names %+v", l.Spec.Holder)
		}
		check.OK(t, host.Command(ctx, "ping", "-q", "-c", "1", "-w", "30", s.Addr.String()).Run())
	}
	reached(first)
	w.end(first)
	second := w.begin(c.Nodes[1])
	reached(second)

	// Its node is cut off from the API server and has no agent. Its pod lives on.
	check.OK(t, errors.Join(c.Nodes[1].Fall(ctx), second.Outlive(ctx)))
	third := w.begin(c.Nodes[2])
	reached(third)
	c.Eventually(t, "the take-over was fenced", func() error { return saidFenced(ctx, c, third) })

	// The zombie tries to speak.
	spoken := func() []capture.Frame {
		return capture.From(capture.SpokenFor(capture.After(c.Frames.Frames(), third.Since), third.Addr), mac)
	}
	speaksLater := func(than time.Time) {
		t.Helper()
		c.Eventually(t, "the third pod's frames are captured", func() error {
			if all := spoken(); len(all) == 0 || !all[len(all)-1].Time.After(than) {
				return errors.New("there are none")
			}
			return nil
		})
	}
	speaksLater(third.Since)
	home := spoken()[len(spoken())-1].Port
	mute(t, second, second.Addr)
	err := second.Command(ctx, "ping", "-q", "-c", "3", "-i", "0.2", "-w", "2", "10.66.0.1").Run()
	if _, unanswered := errors.AsType[*exec.ExitError](err); !unanswered {
		t.Errorf("the zombie pings: %v", err)
	}
	tried := time.Now()
	reached(third)
	speaksLater(tried) // what the zombie has said would be captured before
	for _, f := range spoken() {
		check.That(t, f.Port == home, "the zombie spoke: %s", f)
	}
	check.OK(t, errors.Join(c.Nodes[1].Rise(ctx), second.End(ctx)))
	reached(third)
	c.Eventually(t, "the leases are those of the living", func() error { return c.LeasesAreLiving(ctx) })
}

// fromAddress is the MAC of an IPv4 address with the prefix 0a:58.
func fromAddress(addr netip.Addr) net.HardwareAddr {
	return append(net.HardwareAddr{0x0a, 0x58}, addr.AsSlice()...)
}

// patience is the time in which an expected answer must come, also in an emulated machine.
const patience = time.Minute

// mute fails the test unless a pod's kernel refuses each announcement of an address from the pod.
func mute(t *testing.T, s *nodes.Sandbox, addr netip.Addr) {
	t.Helper()
	var sent, refused atomic.Int64
	stop := check.Value(s.Cry(namespaces.PodInterface, addr, &sent, &refused))(t)
	check.Becomes(t, patience, "refused frames", func() bool { return refused.Load()+sent.Load() >= 3 })
	stop()
	check.That(t, sent.Load() == 0, "%d frames of %s for %s were sent", sent.Load(), s.ContainerID, addr)
}

// saidFenced returns an error until an event reports that the last holder of a sandbox's address was
// fenced, with the ack as proof. The ADD that took the address reports it, or an earlier verification.
func saidFenced(ctx context.Context, c *nodes.Cluster, s *nodes.Sandbox) error {
	all, lease := &eventsv1.EventList{}, v1alpha1.LeaseName("", s.Addr)
	if err := c.List(ctx, all); err != nil {
		return err
	}
	var notes []string
	said := false
	for _, e := range all.Items {
		ofADD := e.Regarding.UID == s.Pod.UID
		if ofADD || e.Regarding.Name == lease {
			notes = append(notes, e.Reason+": "+e.Note)
		}
		said = said || e.Reason == "Fenced" && e.Regarding.Name == lease ||
			e.Reason == "AddressTakenOver" && ofADD && strings.HasSuffix(e.Note, string(segment.Fenced))
	}
	if !said || len(capture.About(capture.Of(c.Frames.Frames(), "ack"), s.Addr)) == 0 {
		return fmt.Errorf("no such event, or no ack of %s; the events are %q", s.Addr, strings.Join(notes, "; "))
	}
	return nil
}

// strikeLimit is more than a strike takes on a busy machine.
const strikeLimit = time.Minute

// A foreign host has one of two IPv6 addresses. The whole chain takes part: the reference macvlan
// plugin with the kernel's duplicate address detection, the agent and the API server. The pod gets
// the other address. A second pod waits, and gets its address once the foreign host has left.
func TestAnIPv6ConflictIsFoundByAWholeADD(t *testing.T) {
	ctx, c := cluster(t, 2*nodes.Limit, 1)
	n := c.Nodes[0]
	taken, free := netip.MustParseAddr("fd66::2"), netip.MustParseAddr("fd66::3")
	pool := c.Pool("v6", "fd66::/64", "fd66::2-fd66::3")
	// With a gateway, the macvlan plugin waits for the kernel's duplicate address detection.
	pool.Spec.Gateway = ptr.To("fd66::1")
	change(ctx, t, c, pool)
	host := c.Host(netip.PrefixFrom(taken, 64))

	pod := started(ctx, t, n, "first", nil) // once the agent has the pool
	check.Must(t, pod.Addr == free, "the pod has %s, want %s", pod.Addr, free)
	ping := host.Command(ctx, "ping", "-6", "-q", "-c", "3", "-i", "0.2", "-w", "30", pod.Addr.String())
	if out, err := ping.CombinedOutput(); err != nil {
		t.Errorf("the foreign host does not reach the pod: %v\n%s", err, out)
	}

	late, ended := empty(ctx, t, n, "second", nil), make(chan error, 1)
	go func() { ended <- late.Add(ctx) }()
	c.Eventually(t, "the second pod waits", func() error {
		return eventOf(ctx, c, "Pod", "second", "AddressAwaited", "pool v6: it is exhausted")
	})
	conflict := check.Value(c.Lease(ctx, taken))(t)
	if s := conflict.Spec; s.Reason != v1alpha1.ReasonConflict || s.Conflict == nil || s.Conflict.MAC != host.MAC.String() {
		t.Errorf("the lease of the foreign host's address is %+v, want its MAC %s", s, host.MAC)
	}

	check.OK(t, host.Unplug())
	left := time.Now()
	check.OK(t, <-ended)
	t.Logf("the address of the foreign host served a pod %s after the host had left", time.Since(left).Round(time.Millisecond))
	check.Equal(t, late.Addr, taken, "the second pod has")
	for _, s := range []*nodes.Sandbox{pod, late} {
		check.OK(t, s.Finish(ctx))
	}
	c.Settles(ctx, t)
}
