// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/test/cluster"
)

// Annotations of the Network Plumbing Working Group's standard: the request of a pod, and the answer
// of Multus.
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
