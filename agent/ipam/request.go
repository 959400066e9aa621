package ipam

import (
	"net/netip"
	"slices"
)

// Pod is what the rules look at in a pod.
type Pod struct {
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
}

// ConfigPools are the pools that the CNI configuration names, per family.
type ConfigPools struct{ V4, V6 []string }

// Request asks for the addresses of one interface of a pod.
type Request struct {
	Pod                  Pod
	NamespaceLabels      map[string]string
	NamespaceAnnotations map[string]string
	NodeName             string
	NodeLabels           map[string]string
	// Interface is the name in the pod, such as eth0.
	Interface string
	// Earlier are the interfaces that have addresses of Fenceline in this
	// sandbox of the pod already, in their order.
	Earlier     []Interface
	ConfigPools ConfigPools
	// Subnets makes pools of the subnets that the pod names; nil where IPSubnet
	// is not available, and such a pod is refused.
	Subnets SubnetPools
	// Kept are the addresses that are this interface's already: those of its
	// name, or of an older sandbox of the pod.
	Kept []Kept
	// IPs are the addresses asked for by CNI or Multus, at most one per family.
	IPs []netip.Addr
}

// Interface is an interface of the pod with the subnets of its addresses.
type Interface struct {
	Name    string
	Subnets []netip.Prefix
}

// Kept is an address of a pool that stays with the pod whatever becomes of the pool.
type Kept struct {
	Addr netip.Addr
	Pool string
}

func (r Request) describe() string { return r.Pod.describe() + " interface " + r.Interface }

// keeps tells whether an address of the pool is this interface's already.
func (r Request) keeps(pool string) bool {
	return slices.ContainsFunc(r.Kept, func(k Kept) bool { return k.Pool == pool })
}
