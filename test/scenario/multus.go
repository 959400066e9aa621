// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
	"github.com/fenceline/fenceline/test/cluster"
)

// playMultus: every interface of a pod has an address of its own, even if two use one pool. A pool
// with multusName serves only the listed attachments.
func playMultus(ctx context.Context, a *act) {
	restricted, requested, first := a.namespace+"-storage", a.namespace+"-requested", a.namespace+"-first"
	a.stageAttachments(ctx, restricted)
	running := a.record()
	a.startPod(ctx, "stranger", a.Node(3), attach("stranger"))
	peer := a.runPod(ctx, "peer", a.Node(2), nil)
	pod := a.runPod(ctx, "many", a.Node(1), attach("data", "backup", "storage"))
	interfaces := a.interfaces(ctx, pod)
	for _, i := range interfaces {
		a.story.Say("Pod many has %s on %s, from network %s.", i.addr, i.name, i.network)
	}
	a.addressEach(ctx, pod, interfaces, restricted)
	a.show(ctx, "get", "fllease", "--output=wide")
	a.isRefused(ctx, "stranger", fmt.Sprintf("pool %s: its multusName [%s/storage] does not list the attachment %s/stranger", restricted, a.namespace, a.namespace))
	for _, i := range interfaces {
		said := ask(ctx, peer, i.addr)
		must(said == pod.Name, "pod peer asked %s of %s, and %q answered", i.name, pod.Name, said)
		speakers := capture.Speakers(running.Frames(), i.addr)
		must(len(speakers) == 1 && speakers[0] == i.mac.String(), "%v speak for %s, not only %s with %s", speakers, i.addr, i.name, i.mac)
	}
	a.story.Say("A pod on another node reaches each of these addresses. Each has one speaker, its own interface.")
	a.requests(ctx, requested)
	a.clusterNetwork(ctx, a.Node(1), first)
	a.nothingIsLeft(ctx, a.namespace, restricted, requested, first)
	a.story.Say("The pods are deleted, and no lease is left.")
}

// stageAttachments installs Multus only for this scenario, since its thin plugin fails the ADD of
// any pod whose object it cannot read within 250 ms. It makes two definitions without a pool, and
// two that name a pool. The pool serves only one of these two.
func (a *act) stageAttachments(ctx context.Context, restricted string) {
	a.installMultus(ctx, cluster.Multus{})
	a.story.Say("Multus is installed. Fenceline remains the network of eth0.")
	a.makePool(ctx, 8, nil)
	a.addPool(ctx, restricted, v1alpha1.IPPoolSpec{
		Subnet: underlay.String(), IPs: a.ips(100, 4), MultusName: []string{a.namespace + "/storage"},
	})
	for name, pools := range map[string][]string{"data": nil, "backup": nil, "storage": {restricted}, "stranger": {restricted}} {
		a.define(ctx, a.namespace, name, nil, pools...)
	}
	a.story.Say("Networks data and backup get their addresses from pool %s, as eth0 does. Networks storage and stranger name pool %s, whose multusName lists only storage.",
		a.namespace, restricted)
}

// addressEach: all addresses are distinct, each interface has its own lease, and the attachment
// storage has an address of the restricted pool.
func (a *act) addressEach(ctx context.Context, pod *cluster.Pod, interfaces []networkInterface, restricted string) {
	want := []networkInterface{
		{name: "eth0", network: "fenceline"},
		{name: "net1", network: a.namespace + "/data"},
		{name: "net2", network: a.namespace + "/backup"},
		{name: "net3", network: a.namespace + "/storage"},
	}
	must(len(interfaces) == len(want), "pod %s has %d interfaces, not %d: %v", pod.Name, len(interfaces), len(want), interfaces)
	seen := map[string]bool{}
	for n, i := range interfaces {
		pool := a.namespace
		if n == len(interfaces)-1 {
			pool = restricted
		}
		must(i.name == want[n].name && i.network == want[n].network,
			"interface %d is %s of %s, not %s of %s", n, i.name, i.network, want[n].name, want[n].network)
		must(!seen[i.addr.String()], "%s is the address of two interfaces: %v", i.addr, interfaces)
		seen[i.addr.String()] = true
		must(len(i.addrs) == 1, "%s of pod %s has the addresses %v, not one", i.name, pod.Name, i.addrs)
		l := a.lease(ctx, i.addr)
		h := l.Spec.Holder
		if l.Spec.State != v1alpha1.StateBound || h == nil || h.PodUID != pod.UID || h.Interface != i.name || h.MAC != i.mac.String() || l.Spec.Pool != pool {
			fail("the lease of %s on %s is of pool %s: %s, holder %+v", i.addr, i.name, l.Spec.Pool, describe(l), h)
		}
	}
}

// clusterNetwork: a pool with the name of Multus' cluster network serves the first interface of a pod
// without annotations.
func (a *act) clusterNetwork(ctx context.Context, node *cluster.Node, pool string) {
	const namespace, name = "kube-system", "first"
	a.addPool(ctx, pool, v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: a.ips(130, 1), MultusName: []string{namespace + "/" + name}})
	a.define(ctx, namespace, name, nil, pool)
	check(a.SetClusterNetwork(ctx, node, name))
	pod := a.runPod(ctx, "plain", node, nil)
	l := a.lease(ctx, addressOf(pod))
	must(l.Spec.Pool == pool, "pod plain has %s of pool %s, not of %s", l.Name, l.Spec.Pool, pool)
	a.story.Say("Multus' cluster network is now %s/%s. Pod plain names no network and has %s from pool %s, whose multusName lists only that definition.",
		namespace, name, addressOf(pod), pool)
	a.deletePod(ctx, pod, false)
}

// Annotations of the Network Plumbing Working Group's standard: the request of a pod, and the answer of Multus.
const (
	annotationNetworks      = "k8s.v1.cni.cncf.io/networks"
	annotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"
)

// attach requests more interfaces: net1, net2 and so on.
func attach(definitions ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{annotationNetworks: strings.Join(definitions, ",")}
	}
}

// installMultus installs Multus until the end of the scenario.
func (a *act) installMultus(ctx context.Context, multus cluster.Multus) {
	a.after("remove Multus", func(ctx context.Context) { check(a.RemoveMultus(ctx)) })
	check(a.InstallMultus(ctx, multus))
}

// define makes a NetworkAttachmentDefinition: macvlan with an address from the pools, or from the
// default pools if none is named. Several interfaces of a pod are on one subnet here: the plugin sbr
// lets each answer by itself. The capabilities are those that its pods may use.
func (a *act) define(ctx context.Context, namespace, name string, capabilities map[string]any, pools ...string) {
	ipam := map[string]any{"type": "fenceline"}
	if len(pools) > 0 {
		ipam["default_ipv4_ippool"] = pools
	}
	a.definePlugins(ctx, namespace, name, macvlan(ipam, capabilities), map[string]any{"type": "sbr"})
}

// macvlan configures the plugin macvlan on the underlay.
func macvlan(ipam, capabilities map[string]any) map[string]any {
	return map[string]any{"type": "macvlan", "master": cluster.UnderlayInterface, "mode": "bridge", "ipam": ipam, "capabilities": capabilities}
}

// definePlugins defines a list of plugins.
func (a *act) definePlugins(ctx context.Context, namespace, name string, plugins ...map[string]any) {
	config := value(json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": name, "plugins": plugins}))
	definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"config": string(config)}}}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"})
	definition.SetNamespace(namespace)
	definition.SetName(name)
	did(a.api.Create(ctx, definition), "make NetworkAttachmentDefinition %s", name)
}

// networkInterface is an interface of a pod as Multus describes it.
type networkInterface struct {
	// network is "namespace/name" of its definition.
	network, name string
	mac           net.HardwareAddr
	// addr is the first of addrs.
	addr  netip.Addr
	addrs []netip.Addr
}

// interfaces returns the interfaces of a pod that Multus reports.
func (a *act) interfaces(ctx context.Context, pod *cluster.Pod) []networkInterface {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	check(a.api.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, object))
	text := object.Annotations[annotationNetworkStatus]
	var statuses []struct {
		Name      string
		Interface string
		IPs       []netip.Addr
		MAC       string
	}
	did(json.Unmarshal([]byte(text), &statuses), "annotation %s of pod %s is %q", annotationNetworkStatus, pod.Name, text)
	var found []networkInterface
	for _, s := range statuses {
		mac, err := net.ParseMAC(s.MAC)
		must(err == nil && len(s.IPs) > 0, "interface %s of pod %s has the addresses %v and MAC %q", s.Interface, pod.Name, s.IPs, s.MAC)
		found = append(found, networkInterface{network: s.Name, name: s.Interface, mac: mac, addr: s.IPs[0], addrs: s.IPs})
	}
	return found
}

// requests: an attachment that requests an address by the capability ips gets it.
func (a *act) requests(ctx context.Context, pool string) {
	const first = 120
	a.addPool(ctx, pool, v1alpha1.IPPoolSpec{Subnet: underlay.String(), IPs: a.ips(first, 2)})
	a.define(ctx, a.namespace, "requested", map[string]any{"ips": true}, pool)
	wanted := a.address(first + 1)
	request := value(json.Marshal([]any{map[string]any{"name": "requested", "ips": []netip.Addr{wanted}}}))
	pod := a.runPod(ctx, "asking", a.Node(1), attach(string(request)))
	interfaces := a.interfaces(ctx, pod)
	must(len(interfaces) == 2 && interfaces[1].addr == wanted, "pod asking was to get %s as its second address: %v", wanted, interfaces)
	a.boundTo(ctx, wanted, pod.UID)
	a.story.Say("Pod asking requests %s on %s by Multus, and gets it.", wanted, interfaces[1].name)
}

// isRefused: the agent reports why a pod cannot have an address. The kubelet reports it too, after
// Multus has removed the other interfaces.
func (a *act) isRefused(ctx context.Context, pod, why string) {
	event := a.event(ctx, pod, "AddressRefused", why)
	a.event(ctx, pod, "FailedCreatePodSandBox", why)
	a.story.Say("Pod %s waits. Its event: %q", pod, event.Message)
}
