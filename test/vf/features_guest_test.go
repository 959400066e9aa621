// SPDX-License-Identifier: Apache-2.0

//go:build kernel && guest

package vf_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
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

// A pod drives its VF itself, as with DPDK: ADD finds no interface, and there is never a guard. (The kernel's
// driver takes the place of this program later.) Its node is cut off from the API server, and another host claims
// its address. The agent tells the PF to switch the VF off, and acks only then.
func TestGuestAVFWithoutAnInterface(t *testing.T) {
	c := vf.New(t, 2)
	c.StartController()
	c.NamedPool("one", "10.66.0.0/24", "10.66.0.20")
	c.NamedPool("others", "10.66.0.0/24", "10.66.0.30-10.66.0.39")
	p, dark, host := podsOf(c, vf.HostDevice, vf.Delegated), c.Nodes[0], c.LAN.Hosts[0]
	v := check.Value(host.VFs())(t)[0]
	beside := p.add(t, 1, 1, nodes.Wants("others"))
	// Without a driver, the VF has the MAC of its PF only, as the plugin sets it by "mac".
	check.OK(t, host.Links().LinkSetVfHardwareAddr(pf(t, host), 0, net.HardwareAddr{2, 0, 0, 0, 0x99, 1}))
	check.OK(t, host.Drive(v, "uio_pci_generic"))

	pod := check.Value(dark.NewPod(t.Context(), "dpdk", nodes.Wants("one")))(t)
	zombie := check.Value(c.NewSandbox(1, pod, v, vf.HostDevice, vf.Delegated))(t)
	zombie.UserDriven = true
	check.OK(t, zombie.Add(t.Context()))
	l := &v1alpha1.IPLease{}
	check.OK(t, c.Get(t.Context(), client.ObjectKey{Name: v1alpha1.LeaseName("", zombie.Addr)}, l))
	info := pf(t, host).Attrs().Vfs[0]
	if h := l.Spec.Holder; h.Guarded || h.MAC != info.Mac.String() || l.Spec.Parent != namespaces.Parent {
		t.Errorf("the lease is of %+v on %s, want no guard, MAC %s on %s", h, l.Spec.Parent, info.Mac, namespaces.Parent)
	}
	check.OK(t, host.Drive(v, ""))
	check.OK(t, host.Collect(beside.Namespace))
	give(t, host, v, zombie.Namespace)
	vf.AwaitCarrier(t, zombie.Namespace, namespaces.PodInterface)
	zombie.MAC = check.Value(zombie.Namespace.MAC(namespaces.PodInterface))(t)
	ear, shout := listen(t, beside.Namespace, zombie), newShout(t, zombie, beside)
	check.Eventually(t, limit, "frames of the program at the VF beside", func() error { return ear.heardSince(time.Time{}) })

	dark.ShutAPI(true)
	begun := time.Now()
	check.OK(t, errors.Join(dark.Report(t.Context(), corev1.ConditionUnknown), zombie.Outlive(t.Context())))
	next := p.begin(t, 2, 0, nodes.Wants("one"))
	about := capture.About(capture.After(c.Frames.Frames(), begun), zombie.Addr)
	claims, acks := capture.Of(about, "claim"), capture.From(capture.Of(about, "ack"), check.Value(host.MAC(namespaces.Parent))(t))
	if len(claims) == 0 || len(acks) == 0 || next.Addr != zombie.Addr {
		t.Fatalf("%d claims, %d acks of the PF, next pod with %s: %v", len(claims), len(acks), next.Addr, about)
	}
	shout.more(t, 500)
	check.That(t, ear.heardSince(acks[0].Time.Add(lateLimit)) != nil, "the VF beside hears the program after the ack")
	shout.stop()

	dark.ShutAPI(false)
	check.OK(t, dark.Report(t.Context(), corev1.ConditionTrue))
	check.OK(t, host.Drive(v, "uio_pci_generic"))
	check.That(t, cutOff(t, host), "the VF is on before its DEL")
	check.OK(t, zombie.Del(t.Context()))
	check.Becomes(t, limit, "the VF is on again", func() bool { return !cutOff(t, host) })
	check.OK(t, errors.Join(host.Drive(v, ""), host.Collect(beside.Namespace)))
	p.removeAll(t, beside, next)
}
