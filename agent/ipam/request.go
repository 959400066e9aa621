package ipam

import "net/netip"

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
	// InterfaceIndex counts the pod's interfaces from 0, for entries of the
	// ippools annotation that name no interface.
	InterfaceIndex int
	// Multus is the NetworkAttachmentDefinition of this attachment
	// ("namespace/name"), empty for the cluster's own network.
	Multus      string
	ConfigPools ConfigPools
	// IPs are the addresses asked for by CNI or Multus, at most one per family.
	IPs []netip.Addr
}
