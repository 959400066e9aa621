// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	// longestInterface is the greatest length of an interface name in the kernel (IFNAMSIZ - 1).
	longestInterface = 15
	// multusNamespace is the namespace of a default network that names none. It is the default
	// of Multus's own configuration.
	multusNamespace = "kube-system"
	// maxEntries is the greatest number of entries of a list in an annotation.
	maxEntries = 256
)

// attachment is one interface of a pod with the NetworkAttachmentDefinition
// ("namespace/name") that it is made from; empty for a network that is made from a file.
type attachment struct{ iface, definition string }

// attachments returns the interfaces that Multus' configuration and the pod's annotations name, in the
// order in which Multus creates them. The first interface is always in the result.
func attachments(pod Pod, m Multus) ([]attachment, error) {
	all := []attachment{{FirstInterface, m.Cluster}}
	if a, ok := findExactly(pod, annotationDefaultNetwork); ok {
		networks, err := parseNetworks(a, cmp.Or(m.Namespace, multusNamespace))
		if err != nil {
			return nil, err
		}
		if len(networks) != 1 {
			return nil, a.wrong("it names %d networks, a pod has one default network", len(networks))
		}
		all[0].definition = networks[0].definition
		if networks[0].iface != "" {
			all[0].iface = networks[0].iface
		}
	}
	for _, definition := range m.additional(pod.Namespace) {
		all = append(all, attachment{fmt.Sprintf("net%d", len(all)), definition})
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
		if n.iface == "" {
			n.iface = fmt.Sprintf("net%d", len(all))
		}
		if place(all, n.iface) >= 0 {
			return nil, a.wrong("two networks make the interface %s", n.iface)
		}
		all = append(all, n)
	}
	return all, nil
}

// Attached is one interface of a pod, and the NetworkAttachmentDefinition ("namespace/name") that it is
// made from. Definition is empty for a network that is made from a file.
type Attached struct{ Interface, Definition string }

// Interfaces returns the interfaces that Multus' configuration and the pod's annotations name, in the
// order in which Multus creates them.
func Interfaces(pod Pod, m Multus) ([]Attached, error) {
	var all []Attached
	found, err := attachments(pod, m)
	for _, a := range found {
		all = append(all, Attached{a.iface, a.definition})
	}
	return all, err
}

// place returns the index of an interface, or -1.
func place(all []attachment, iface string) int {
	return slices.IndexFunc(all, func(a attachment) bool { return a.iface == iface })
}

// findExactly returns the annotation of another project by its full name.
func findExactly(pod Pod, key string) (annotation, bool) {
	value, ok := pod.Annotations[key]
	return annotation{pod.describe(), key, value, networksForm}, ok
}

// parseNetworks reads both forms of a network selection. It must not be stricter than Multus, which
// has already accepted the value if the pod has several interfaces.
func parseNetworks(a annotation, namespace string) ([]attachment, error) {
	parse := parseNetworkNames
	if strings.ContainsAny(a.value, `[{"`) {
		parse = parseNetworkList
	}
	networks, err := parse(a, namespace)
	if err == nil && len(networks) > maxEntries {
		err = a.wrong("it has %d entries, more than %d", len(networks), maxEntries)
	}
	return networks, err
}

// parseNetworkList reads the JSON form. It ignores the fields that only other plugins read.
func parseNetworkList(a annotation, namespace string) ([]attachment, error) {
	var list []*struct {
		Name         string `json:"name"`
		Namespace    string `json:"namespace"`
		Interface    string `json:"interface"`
		OldInterface string `json:"interfaceRequest"`
	}
	if err := json.Unmarshal([]byte(a.value), &list); err != nil {
		return nil, a.wrong("not the JSON expected: %w", err)
	}
	networks := make([]attachment, 0, len(list))
	for i, e := range list {
		if e == nil || e.Name == "" {
			return nil, a.wrong("entry %d names no network", i)
		}
		networks = append(networks, attachment{
			iface:      cmp.Or(e.Interface, e.OldInterface),
			definition: cmp.Or(e.Namespace, namespace) + "/" + e.Name,
		})
	}
	return networks, nil
}

// parseNetworkNames reads the form [namespace/]name[@interface], separated by commas.
func parseNetworkNames(a annotation, namespace string) ([]attachment, error) {
	var networks []attachment
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
		networks = append(networks, attachment{iface, in + "/" + name})
	}
	return networks, nil
}
