// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// playMultus: every interface of a pod has an address of its own, also where two
// are on one pool, and a pool serves the attachments it is meant for.
func playMultus(ctx context.Context, a *act) error {
	restricted, requested, first := a.namespace+"-storage", a.namespace+"-requested", a.namespace+"-first"
	if err := a.stageAttachments(ctx, restricted); err != nil {
		return err
	}
	running, err := a.Capture()
	if err != nil {
		return err
	}
	a.after("end the capture", func(context.Context) error { _, err := running.Stop(); return err })
	if err := a.startPod(ctx, "stranger", a.Node(3), attach("stranger")); err != nil {
		return err
	}
	peer, err := a.runPod(ctx, "peer", a.Node(2), nil)
	if err != nil {
		return err
	}
	pod, err := a.runPod(ctx, "many", a.Node(1), attach("data", "backup", "storage"))
	if err != nil {
		return err
	}
	interfaces, err := a.interfaces(ctx, pod)
	if err != nil {
		return err
	}
	for _, i := range interfaces {
		a.story.Say("Pod many has %s on %s, from network %s.", i.addr, i.name, i.network)
	}
	if err := a.addressEach(ctx, pod, interfaces, restricted); err != nil {
		return err
	}
	if err := a.show(ctx, "get", "fllease", "--output=wide"); err != nil {
		return err
	}
	if err := a.strangerIsRefused(ctx, restricted); err != nil {
		return err
	}
	for _, i := range interfaces {
		said, err := ask(ctx, peer, i.addr)
		if err != nil {
			return err
		}
		if said != pod.Name {
			return fmt.Errorf("pod peer asked %s of %s, and %q answered", i.name, pod.Name, said)
		}
		speakers := capture.Speakers(running.Frames(), i.addr)
		if len(speakers) != 1 || speakers[0] != i.mac.String() {
			return fmt.Errorf("%v speak for %s, not only %s with %s", speakers, i.addr, i.name, i.mac)
		}
	}
	a.figures.add("interfaces reached from another node", len(interfaces))
	a.story.Say("A pod on another node reaches each of these addresses. Each has one speaker, its own interface.")
	if err := a.requests(ctx, requested); err != nil {
		return err
	}
	if err := a.clusterNetwork(ctx, a.Node(1), first); err != nil {
		return err
	}
	if err := a.nothingIsLeft(ctx, a.namespace, restricted, requested, first); err != nil {
		return err
	}
	a.story.Say("The pods are deleted, and no lease is left.")
	return nil
}

// stageAttachments installs Multus for the length of the scenario, since its thin
// plugin fails the ADD of any pod whose object it cannot read within 250 ms. It
// makes two definitions without a pool, and two that name a
// pool which is meant for one of them.
func (a *act) stageAttachments(ctx context.Context, restricted string) error {
	a.after("remove Multus", a.RemoveMultus)
	if err := a.InstallMultus(ctx, cluster.Multus{}); err != nil {
		return err
	}
	a.story.Say("Multus is installed. Fenceline remains the network of eth0.")
	if err := a.makePool(ctx, 8, nil); err != nil {
		return err
	}
	err := a.addPool(ctx, restricted, v1alpha1.IPPoolSpec{
		Subnet: underlay.String(), IPs: a.ips(100, 4), MultusName: []string{a.namespace + "/storage"},
	})
	if err != nil {
		return err
	}
	err = errors.Join(a.define(ctx, "data"), a.define(ctx, "backup"), a.define(ctx, "storage", restricted), a.define(ctx, "stranger", restricted))
	if err != nil {
		return err
	}
	a.story.Say("Networks data and backup get their addresses from pool %s, as eth0 does. Networks storage and stranger name pool %s, whose multusName lists only storage.",
		a.namespace, restricted)
	return nil
}

// addressEach: all addresses are distinct, each interface has the lease of its
// own, and the attachment that a pool is meant for has one of that pool.
func (a *act) addressEach(ctx context.Context, pod *cluster.Pod, interfaces []networkInterface, restricted string) error {
	want := []networkInterface{
		{name: "eth0", network: "fenceline"},
		{name: "net1", network: a.namespace + "/data"},
		{name: "net2", network: a.namespace + "/backup"},
		{name: "net3", network: a.namespace + "/storage"},
	}
	if len(interfaces) != len(want) {
		return fmt.Errorf("pod %s has %d interfaces, not %d: %v", pod.Name, len(interfaces), len(want), interfaces)
	}
	seen := map[string]bool{}
	for n, i := range interfaces {
		pool := a.namespace
		if n == len(interfaces)-1 {
			pool = restricted
		}
		if i.name != want[n].name || i.network != want[n].network {
			return fmt.Errorf("interface %d is %s of %s, not %s of %s", n, i.name, i.network, want[n].name, want[n].network)
		}
		if seen[i.addr.String()] {
			return fmt.Errorf("%s is the address of two interfaces: %v", i.addr, interfaces)
		}
		seen[i.addr.String()] = true
		if len(i.addrs) != 1 {
			return fmt.Errorf("%s of pod %s has the addresses %v, not one", i.name, pod.Name, i.addrs)
		}
		l, err := a.lease(ctx, i.addr)
		if err != nil {
			return err
		}
		h := l.Spec.Holder
		if l.Spec.State != v1alpha1.StateBound || h == nil || h.PodUID != pod.UID || h.Interface != i.name || h.MAC != i.mac.String() || l.Spec.Pool != pool {
			return fmt.Errorf("the lease of %s on %s is of pool %s: %s, holder %+v", i.addr, i.name, l.Spec.Pool, describe(l), h)
		}
	}
	return nil
}

// strangerIsRefused: people are told why, by both who know.
func (a *act) strangerIsRefused(ctx context.Context, restricted string) error {
	why := fmt.Sprintf("pool %s: its multusName [%s/storage] does not list the attachment %s/stranger", restricted, a.namespace, a.namespace)
	if _, err := a.event(ctx, "stranger", "FailedCreatePodSandBox", why); err != nil {
		return err
	}
	event, err := a.event(ctx, "stranger", "AddressRefused", why)
	if err != nil {
		return err
	}
	a.story.Say("Pod stranger waits. Its event: %q", event.Message)
	return nil
}

// clusterNetwork: a pool with the name of Multus' cluster network serves the first interface of a pod
// without annotations.
func (a *act) clusterNetwork(ctx context.Context, node *cluster.Node, pool string) error {
	const namespace, name = "kube-system", "first"
	err := a.addPool(ctx, pool, v1alpha1.IPPoolSpec{
		Subnet: underlay.String(), IPs: a.ips(130, 1), MultusName: []string{namespace + "/" + name},
	})
	if err != nil {
		return err
	}
	if err := a.defineIn(ctx, namespace, name, nil, pool); err != nil {
		return err
	}
	if err := a.SetClusterNetwork(ctx, node, name); err != nil {
		return err
	}
	pod, err := a.runPod(ctx, "plain", node, nil)
	if err != nil {
		return err
	}
	l, err := a.lease(ctx, addressOf(pod))
	if err != nil {
		return err
	}
	if l.Spec.Pool != pool {
		return fmt.Errorf("pod plain has %s of pool %s, not of %s", l.Name, l.Spec.Pool, pool)
	}
	a.story.Say("Multus' cluster network is now %s/%s. Pod plain names no network and has %s from pool %s, whose multusName lists only that definition.",
		namespace, name, addressOf(pod), pool)
	return a.deletePod(ctx, pod, false)
}
