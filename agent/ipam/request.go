// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"net/netip"
	"slices"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
)

// Pod is the part of a pod that the rules read.
type Pod struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	// Ordinal is that of a StatefulSet's pod. It is nil for other pods. Shares: the owner of the pod makes
	// others like it, none of which has a place of its own, as a Deployment does.
	Ordinal *int64
	Shares  bool
	// OwnerKind and OwnerName are those of its owner, or empty.
	OwnerKind, OwnerName string
}

// ConfigPools are the pools that the CNI configuration names, per family.
type ConfigPools struct{ V4, V6 []string }

// Multus is the part of Multus' own configuration that gives networks to pods whose annotations name
// none. It is empty on a node without Multus.
type Multus struct {
	// Namespace is the namespace of a default network that names none.
	Namespace string
	// Cluster is the NetworkAttachmentDefinition ("namespace/name") of the first interface,
	// Additional those of the next ones. They are empty for networks made from files.
	Cluster    string
	Additional []string
	// Without are the namespaces whose pods get no additional networks.
	Without []string
}

// additional returns the additional networks of the pods of a namespace.
func (m Multus) additional(namespace string) []string {
	if slices.Contains(m.Without, namespace) {
		return nil
	}
	return m.Additional
}

// Request is a request for the addresses of one interface of a pod.
type Request struct {
	Pod                  Pod
	NamespaceLabels      map[string]string
	NamespaceAnnotations map[string]string
	NodeName             string
	NodeLabels           map[string]string
	Multus               Multus
	// Interface is the name in the pod, such as eth0, and Parent its parent on the node.
	Interface string
	Parent    Parent
	// Earlier are the interfaces in this sandbox of the pod that already have addresses of
	// Fenceline, in the order of their ADDs.
	Earlier     []Interface
	ConfigPools ConfigPools
	// Application is the application of the pod. It is empty if nothing asks for it: see AsksForSubnets.
	Application v1alpha1.Application
	Subnets     Subnets
	// Kept are the addresses retained for the name of the pod, and those of its older sandboxes.
	// ChoosePools gets only those that the interface is to have again.
	Kept []Kept
	// Reservations are those of the cluster. Some may keep addresses for the pod. It may be nil.
	Reservations poolset.Reserved
	// IPs are the addresses that CNI or Multus requests, at most one per family.
	IPs []netip.Addr
}

// Interface is an interface of the pod with its addresses and their subnets.
type Interface struct {
	Name      string
	Subnets   []netip.Prefix
	Addresses []Kept
}

// Kept is an address that stays with the pod, even if its pool is changed, disabled or deleted, or
// if other pools are named now.
type Kept struct {
	Addr netip.Addr
	Pool string
	// Parent is that of the interface that had the address. Only Standings reads it.
	Parent string
}

// Describe names the interface for people: "pod ns/name interface eth0".
func (r Request) Describe() string { return r.Pod.describe() + " interface " + r.Interface }

// keeps reports whether an address of the pool already belongs to this interface.
func (r Request) keeps(pool string) bool {
	return slices.ContainsFunc(r.Kept, func(k Kept) bool { return k.Pool == pool })
}
