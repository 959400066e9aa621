// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/demand"
)

// Annotations that Multus reads. Multus creates the interface of the cluster's network first, then
// the interfaces of its own additional networks, then one for each network in the list. A network
// without an interface name gets net1, net2 … after its place among all of them.
const (
	annotationDefaultNetwork = "v1.multus-cni.io/default-network"
	annotationNetworks       = "k8s.v1.cni.cncf.io/networks"

	networksForm = `"namespace/name@net1, …" or [{"name": "name", "namespace": "namespace", "interface": "net1"}]`
)

const (
	// FirstInterface is the name that container runtimes give to the first interface of a pod.
	FirstInterface = "eth0"
	// multusNamespace is the namespace of a default network that names none, as in Multus.
	multusNamespace = "kube-system"
)

// Attachment is one interface of a pod, and the NetworkAttachmentDefinition ("namespace/name") that it is
// made from. Definition is empty for a network that is made from a file.
type Attachment struct{ Interface, Definition string }

// Attachments returns the interfaces that Multus' configuration and the pod's annotations name, in the
// order in which Multus creates them. The first interface is always in the result.
func Attachments(pod Pod, m Multus) ([]Attachment, error) {
	all := []Attachment{{FirstInterface, m.Cluster}}
	if a, ok := findExactly(pod, annotationDefaultNetwork); ok {
		networks, err := parseNetworks(a, cmp.Or(m.Namespace, multusNamespace))
		if err != nil {
			return nil, err
		}
		if len(networks) != 1 {
			return nil, a.wrong("it names %d networks, a pod has one default network", len(networks))
		}
		all[0].Definition = networks[0].Definition
		if networks[0].Interface != "" {
			all[0].Interface = networks[0].Interface
		}
	}
	for _, definition := range m.additional(pod.Namespace) {
		all = append(all, Attachment{fmt.Sprintf("net%d", len(all)), definition})
	}
	a, ok := findExactly(pod, annotationNetworks)
	if !ok || a.value == "" {
		return all, nil
	}
	networks, err := parseNetworks(a, pod.Namespace)
	if err != nil {
		return nil, err
	}
	for _, n := range networks {
		if n.Interface == "" {
			n.Interface = fmt.Sprintf("net%d", len(all))
		}
		if place(all, n.Interface) >= 0 {
			return nil, a.wrong("two networks make the interface %q", n.Interface)
		}
		all = append(all, n)
	}
	return all, nil
}

// place returns the index of an interface, or -1.
func place(all []Attachment, iface string) int {
	return slices.IndexFunc(all, func(a Attachment) bool { return a.Interface == iface })
}

// findExactly returns the annotation of another project by its full name.
func findExactly(pod Pod, key string) (annotation, bool) {
	value, ok := pod.Annotations[key]
	return annotation{pod.describe(), key, value, networksForm}, ok
}

// parseNetworks reads both forms of a network selection. It must not be stricter than Multus, which
// has already accepted the value if the pod has several interfaces.
func parseNetworks(a annotation, namespace string) ([]Attachment, error) {
	parse := parseNetworkNames
	if strings.ContainsAny(a.value, `[{"`) {
		parse = parseNetworkList
	}
	networks, err := parse(a, namespace)
	if err == nil && len(networks) > demand.MaxEntries {
		err = a.wrong("it has %d entries, more than %d", len(networks), demand.MaxEntries)
	}
	return networks, err
}

// parseNetworkList reads the JSON form. It ignores the fields that only other plugins read.
func parseNetworkList(a annotation, namespace string) ([]Attachment, error) {
	var list []*struct {
		Name         string `json:"name"`
		Namespace    string `json:"namespace"`
		Interface    string `json:"interface"`
		OldInterface string `json:"interfaceRequest"`
	}
	if err := json.Unmarshal([]byte(a.value), &list); err != nil {
		return nil, a.wrong("not the JSON expected: %w", err)
	}
	networks := make([]Attachment, 0, len(list))
	for i, e := range list {
		if e == nil || e.Name == "" {
			return nil, a.wrong("entry %d names no network", i)
		}
		networks = append(networks, Attachment{
			Interface:  cmp.Or(e.Interface, e.OldInterface),
			Definition: cmp.Or(e.Namespace, namespace) + "/" + e.Name,
		})
	}
	return networks, nil
}

// parseNetworkNames reads the form [namespace/]name[@interface], separated by commas.
func parseNetworkNames(a annotation, namespace string) ([]Attachment, error) {
	var networks []Attachment
	for i, item := range strings.Split(a.value, ",") {
		qualified, iface, _ := strings.Cut(strings.TrimSpace(item), "@")
		in, name, found := strings.Cut(qualified, "/")
		if !found {
			in, name = namespace, qualified
		}
		in, name, iface = strings.TrimSpace(in), strings.TrimSpace(name), strings.TrimSpace(iface)
		if in == "" || name == "" || strings.ContainsAny(name+iface, "/@") {
			return nil, a.wrong("entry %d names no network", i)
		}
		networks = append(networks, Attachment{iface, in + "/" + name})
	}
	return networks, nil
}
