// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/nodes"
	"github.com/fenceline/fenceline/test/owners"
)

// The identity of a virtual machine is the machine, whatever its pods are called, and the StatefulSet
// of another project gives its names again. The address comes back after a restart, after a stop, and
// on another node when the first one loses its power. It ends with its owner.
func TestAddressesOfOwnersOfOtherProjects(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	c := nodes.New(t, 3)
	check(t, owners.Install(ctx, c.Server.Admin(), append(owners.Machines(), owners.StatefulSets())...))
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.29")
	c.StartController()
	dark, light := c.Nodes[0], c.Nodes[1]
	begin(ctx, t, c, crowd(t, c, "heard", len(c.Nodes))[1:]) // so that the silence of others counts

	set, machine := owners.StatefulSet(nodes.Shop, "web", 1), owners.Machine(nodes.Shop, "db", "Halted")
	check(t, errors.Join(c.Create(ctx, set), c.Create(ctx, machine)))
	launched := 0
	all := []*owned{
		{what: "OpenKruise", pod: func() (string, func(*corev1.Pod)) { return "web-0", owners.OfSet("web") }},
		{what: "KubeVirt", pod: func() (string, func(*corev1.Pod)) {
			launched++
			return fmt.Sprintf("virt-launcher-db-%d", launched), owners.OfMachine("db")
		}},
	}
	play := func(what string, n *nodes.Node) {
		t.Helper()
		for _, o := range all {
			name, change := o.pod()
			pod, err := n.NewPod(ctx, name, change)
			check(t, err)
			s, err := n.Begin(ctx, pod)
			check(t, err)
			if o.last != nil && s.Addr != o.last.Addr {
				t.Errorf("%s, %s: the address was %s and is %s", o.what, what, o.last.Addr, s.Addr)
			}
			o.last = s
		}
	}
	end := func() {
		t.Helper()
		for _, o := range all {
			check(t, errors.Join(o.last.End(ctx), c.ForgetPod(ctx, o.last.Pod)))
		}
	}

	play("first", dark)
	end()
	play("a restart", light)
	end()
	play("back on the first node", dark)

	check(t, errors.Join(dark.KillAgent(), dark.CutUnderlay()))
	(&off{Cluster: c, t: t, ctx: ctx}).report(dark, corev1.ConditionUnknown)
	for _, o := range all {
		check(t, errors.Join(o.last.Remove(), c.ForgetPod(ctx, o.last.Pod)))
	}
	play("the node has lost its power", light)

	// The owners end while their pods are gone. A stopped machine keeps its address until then.
	end()
	for _, o := range all {
		l := &v1alpha1.IPLease{}
		check(t, c.Get(ctx, client.ObjectKey{Name: o.last.Addr.String()}, l))
		if l.Spec.State != v1alpha1.StateRetained {
			t.Errorf("%s: the address is %s after the end of the pod", o.what, l.Spec.State)
		}
	}
	check(t, errors.Join(c.Delete(ctx, set), c.Delete(ctx, machine)))
	for _, o := range all {
		name := client.ObjectKey{Name: o.last.Addr.String()}
		c.Eventually(t, o.what+": the address is free", func() error {
			l := &v1alpha1.IPLease{}
			err := c.Get(ctx, name, l)
			if err != nil {
				return client.IgnoreNotFound(err)
			}
			// Nothing tells the controller of the end of such an owner. An edit of the lease wakes it.
			l.Annotations = map[string]string{"test": l.ResourceVersion}
			return errors.Join(fmt.Errorf("it is %s: %s", l.Spec.State, l.Spec.Message), client.IgnoreNotFound(c.Update(ctx, l)))
		})
	}
	check(t, c.SpeakersAreHolders())
}

// owned is an owner of one pod at a time.
type owned struct {
	what string
	pod  func() (name string, change func(*corev1.Pod))
	last *nodes.Sandbox
}

// R15: source and target of a live migration have one address. The target is mute until KubeVirt says
// that the machine runs there. Then it speaks, and the source is fenced and not deleted.
func TestALiveMigrationHandsTheAddressOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*nodes.Limit)
	defer cancel()
	c := nodes.New(t, 2)
	check(t, owners.Install(ctx, c.Server.Admin(), owners.Machines()...))
	c.Pool("v4", "10.66.0.0/24", "10.66.0.2-10.66.0.29")
	c.StartController()
	host := &off{Cluster: c, t: t, ctx: ctx, host: c.Host(netip.MustParsePrefix("10.66.0.1/24"))}
	machine, instance := owners.Machine(nodes.Shop, "db", "Always"), owners.Instance(nodes.Shop, "db")
	check(t, errors.Join(c.Create(ctx, machine), c.Create(ctx, instance)))
	launch := func(n *nodes.Node, name string, change ...func(*corev1.Pod)) *nodes.Sandbox {
		t.Helper()
		pod, err := n.NewPod(ctx, name, func(pod *corev1.Pod) {
			for _, c := range append([]func(*corev1.Pod){owners.OfMachine("db")}, change...) {
				c(pod)
			}
		})
		check(t, err)
		s, err := n.Begin(ctx, pod)
		check(t, err)
		return s
	}
	source := launch(c.Nodes[0], "virt-launcher-db-a")
	neighbour := host.neighbour(source.Addr)
	target := launch(c.Nodes[1], "virt-launcher-db-b", func(pod *corev1.Pod) { pod.Labels[owner.LabelMigration] = "m" })
	if target.Addr != source.Addr {
		t.Fatalf("the target has %s, the source %s", target.Addr, source.Addr)
	}
	if mac := host.neighbour(source.Addr); mac != neighbour {
		t.Errorf("during the migration, %s is at %s, and was at %s", source.Addr, mac, neighbour)
	}
	state := map[string]any{"sourcePod": source.Pod.Name, "targetPod": target.Pod.Name, "mode": "PreCopy"}
	report := func() {
		t.Helper()
		check(t, unstructured.SetNestedMap(instance.Object, state, "status", "migrationState"))
		check(t, c.Update(ctx, instance))
	}
	report()
	if holder := host.holder(source.Addr); holder != source.Pod.Name {
		t.Errorf("before the end of the migration, the lease is %s's", holder)
	}
	state["targetNodeDomainReadyTimestamp"] = "2030-01-01T12:00:00Z"
	report()
	c.Eventually(t, "the target has the address", func() error {
		if holder := host.holder(source.Addr); holder != target.Pod.Name {
			return fmt.Errorf("the lease is %s's", holder)
		}
		return nil
	})
	c.Eventually(t, "the target answers", func() error {
		if mac := host.neighbour(source.Addr); mac == neighbour {
			return fmt.Errorf("%s is still at %s", source.Addr, mac)
		}
		return nil
	})
	check(t, c.Get(ctx, client.ObjectKeyFromObject(source.Pod), source.Pod))
	if source.Pod.DeletionTimestamp != nil {
		t.Error("the source was deleted")
	}
	check(t, errors.Join(source.End(ctx), c.ForgetPod(ctx, source.Pod)))
	if mac := host.neighbour(source.Addr); mac == neighbour {
		t.Errorf("after the end of the source, %s is at %s", source.Addr, mac)
	}
	check(t, c.LeasesAreLiving(ctx))
}

// neighbour returns the MAC of the host that answers for an address.
func (o *off) neighbour(addr netip.Addr) string {
	o.t.Helper()
	check(o.t, o.host.Command(o.ctx, "ip", "neigh", "flush", "all").Run())
	if !o.answers(addr) {
		return ""
	}
	out, err := o.host.Command(o.ctx, "ip", "neigh", "show", addr.String()).Output()
	check(o.t, err)
	return string(macs.Find(out))
}

var macs = regexp.MustCompile(`([0-9a-f]{2}:){5}[0-9a-f]{2}`)

// holder returns the pod of the lease of an address.
func (o *off) holder(addr netip.Addr) string {
	o.t.Helper()
	l := &v1alpha1.IPLease{}
	check(o.t, o.Get(o.ctx, client.ObjectKey{Name: addr.String()}, l))
	if l.Spec.State != v1alpha1.StateBound || l.Spec.Previous != nil {
		return string(l.Spec.State)
	}
	return l.Spec.Holder.Pod
}
