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

	"github.com/fenceline/fenceline/test/cluster"
)

// Annotations of the Network Plumbing Working Group's standard: what a pod asks
// for, and what Multus answers.
const (
	annotationNetworks      = "k8s.v1.cni.cncf.io/networks"
	annotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"
)

// attach asks for more interfaces: net1, net2 and so on.
func attach(definitions ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{annotationNetworks: strings.Join(definitions, ",")}
	}
}

// define makes a NetworkAttachmentDefinition: macvlan with an address from the
// pools, or from those that offer themselves if none is named. Several interfaces
// of a pod are on one subnet here: sbr lets each answer by itself.
func (a *act) define(ctx context.Context, name string, pools ...string) error {
	return a.defineWith(ctx, name, nil, pools...)
}

// defineWith defines one with capabilities, which are what its pods may ask for.
func (a *act) defineWith(ctx context.Context, name string, capabilities map[string]any, pools ...string) error {
	return a.defineIn(ctx, a.namespace, name, capabilities, pools...)
}

// defineIn defines one in a namespace.
func (a *act) defineIn(ctx context.Context, namespace, name string, capabilities map[string]any, pools ...string) error {
	ipam := map[string]any{"type": "fenceline"}
	if len(pools) > 0 {
		ipam["default_ipv4_ippool"] = pools
	}
	return a.definePlugins(ctx, namespace, name, macvlan(ipam, capabilities), map[string]any{"type": "sbr"})
}

// macvlan configures the plugin macvlan on the underlay.
func macvlan(ipam, capabilities map[string]any) map[string]any {
	return map[string]any{"type": "macvlan", "master": cluster.UnderlayInterface, "mode": "bridge", "ipam": ipam, "capabilities": capabilities}
}

// definePlugins defines a list of plugins.
func (a *act) definePlugins(ctx context.Context, namespace, name string, plugins ...map[string]any) error {
	config, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": name, "plugins": plugins})
	if err != nil {
		return fmt.Errorf("make NetworkAttachmentDefinition %s: %w", name, err)
	}
	definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"config": string(config)}}}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"})
	definition.SetNamespace(namespace)
	definition.SetName(name)
	if err := a.api.Create(ctx, definition); err != nil {
		return fmt.Errorf("make NetworkAttachmentDefinition %s: %w", name, err)
	}
	return nil
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

// interfaces returns what Multus says that a pod has got.
func (a *act) interfaces(ctx context.Context, pod *cluster.Pod) ([]networkInterface, error) {
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
	if err := json.Unmarshal([]byte(text), &statuses); err != nil {
		return nil, fmt.Errorf("annotation %s of pod %s is %q: %w", annotationNetworkStatus, pod.Name, text, err)
	}
	var found []networkInterface
	for _, s := range statuses {
		mac, err := net.ParseMAC(s.MAC)
		if err != nil || len(s.IPs) == 0 {
			return nil, fmt.Errorf("interface %s of pod %s has the addresses %v and MAC %q", s.Interface, pod.Name, s.IPs, s.MAC)
		}
		found = append(found, networkInterface{network: s.Name, name: s.Interface, mac: mac, addr: s.IPs[0], addrs: s.IPs})
	}
	return found, nil
}
