// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// adoptFacts are the facts about a hold and the interface that has its address.
type adoptFacts struct {
	Node string
	Hold *v1alpha1.IPLease
	// Pod is the pod of the hold, read past the cache. It is nil if there is none of that name and UID.
	Pod *corev1.Pod
	// Places are all interfaces in the network namespaces of this node.
	Places []pod.Place
	// Pool is the pool of the hold, nil if there is none.
	Pool *v1alpha1.IPPool
	// Ours are the addresses of the holds of the same pod on this node.
	Ours []netip.Addr
	// Link and Parent describe the interface that has the address. Unfit is why Fenceline does not serve it.
	Link   pod.Interface
	Parent ipam.Parent
	Unfit  error
	// Asked: an ADD of the pod's next sandbox waits for the address.
	Asked bool
	// Taken: a slot of this node may use the address already.
	Taken bool
}

// placesOf returns the interfaces that have an address.
func placesOf(all []pod.Place, addr netip.Addr) []pod.Place {
	return slices.DeleteFunc(slices.Clone(all), func(p pod.Place) bool { return !slices.Contains(p.Addresses, addr) })
}

// own returns the interfaces that have the address of the hold in the pod's network namespace: the kubelet writes
// podIPs, and no two pods share one, so a namespace with all of them is the pod's. others are those of other
// namespaces that are on a parent of this node.
func (f *adoptFacts) own() (own, others []pod.Place) {
	for _, p := range placesOf(f.Places, f.Hold.Spec.Addr()) {
		if f.lacksPodIP(p.NetNS) == "" {
			own = append(own, p)
		} else if p.Parent.Index != 0 {
			others = append(others, p)
		}
	}
	if len(own) > 1 { // one without a parent here is no child of this node, such as a veth
		own = slices.DeleteFunc(own, func(p pod.Place) bool { return p.Parent.Index == 0 })
	}
	return own, others
}

// isGone reports whether the predecessor of a hold is proven gone: no network namespace of its node has the address,
// and Kubernetes knows no such pod, or it has finished, or its next sandbox asks for the address. While the old IPAM
// may still start the pod, the lack of an interface proves nothing.
func (f *adoptFacts) isGone() bool {
	return (f.Pod == nil || owner.HasFinished(f.Pod) || f.Asked) &&
		len(placesOf(f.Places, f.Hold.Spec.Addr())) == 0
}

// against returns the first reason against the adoption, as a clause; "" if there is none. The record of the old
// IPAM (the hold), Kubernetes (the pod's UID, node and podIPs), the pod's annotation and the interface on the
// node must agree: each alone may be wrong or forged.
func (f *adoptFacts) against() string {
	spec, addr := &f.Hold.Spec, f.Hold.Spec.Addr()
	places := placesOf(f.Places, addr)
	own, others := f.own()
	switch {
	case f.Hold.Annotations[v1alpha1.AnnotationMoveHold] != "":
		return f.Hold.Annotations[v1alpha1.AnnotationMoveHold]
	case f.Pod == nil && len(places) > 0:
		return fmt.Sprintf("its pod does not exist any more, but interface %s in %s still has it", places[0].Interface, places[0].NetNS)
	case f.Pod == nil:
		return "its pod does not exist any more"
	case f.Pod.Spec.NodeName != f.Node:
		return fmt.Sprintf("its pod is on node %s, and the record says %s", f.Pod.Spec.NodeName, f.Node)
	case f.Pod.Spec.HostNetwork:
		return "its pod is on the host's network"
	case owner.Ends(f.Pod) || owner.HasFinished(f.Pod):
		return "its pod ends"
	case f.Pool == nil:
		return "pool " + spec.Pool + " does not exist"
	case len(places) == 0:
		return "no network namespace of the node has it"
	case len(f.Pod.Status.PodIPs) == 0:
		return "its pod has no podIPs yet"
	case len(own) == 0:
		return fmt.Sprintf("it is on interface %s in %s, which is not the pod's: no interface there has its podIP %s",
			places[0].Interface, places[0].NetNS, f.lacksPodIP(places[0].NetNS))
	case len(own) > 1:
		return fmt.Sprintf("interfaces %s in %s and %s in %s both have it", own[0].Interface, own[0].NetNS, own[1].Interface, own[1].NetNS)
	case len(others) > 0:
		return fmt.Sprintf("interface %s in %s, which is not the pod's, has it too", others[0].Interface, others[0].NetNS)
	case f.Unfit != nil:
		return "interface " + own[0].Interface + " is of no kind that can be guarded: " + f.Unfit.Error()
	case f.Link.NodeEnd != 0:
		return "interface " + own[0].Interface + " is a port of a bridge, which is not adopted"
	case spec.Holder.Interface != "" && spec.Holder.Interface != f.Link.Name:
		return fmt.Sprintf("it is on interface %s, and the record says %s", f.Link.Name, spec.Holder.Interface)
	case spec.Holder.MAC != "" && spec.Holder.MAC != f.Link.MAC.String():
		return fmt.Sprintf("interface %s has the MAC %s, and the record says %s", f.Link.Name, f.Link.MAC, spec.Holder.MAC)
	case !f.Link.Up:
		return "interface " + f.Link.Name + " is down"
	case !f.Parent.Carries(&f.Pool.Spec):
		return "the interface is on another parent than its pool: " + f.Parent.Missed(&f.Pool.Spec)
	case f.denies(addr) != "":
		return f.denies(addr)
	case f.unheld(own[0]).IsValid():
		return fmt.Sprintf("interface %s also has %s, which no record of the move has yet, and its guard would drop frames from there",
			f.Link.Name, f.unheld(own[0]))
	case f.Taken:
		return "another pod of this node has it under Fenceline"
	}
	return ""
}

// lacksPodIP returns a podIP that no interface in a network namespace has; "" if it has all.
func (f *adoptFacts) lacksPodIP(netns string) string {
	if f.Pod == nil || len(f.Pod.Status.PodIPs) == 0 {
		return "(none)"
	}
	for _, ip := range f.Pod.Status.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		if err != nil || !slices.ContainsFunc(f.Places, func(p pod.Place) bool { return p.NetNS == netns && slices.Contains(p.Addresses, addr) }) {
			return ip.IP
		}
	}
	return ""
}

// denies returns why the pod does not say that it has an address, as a clause; "" if podIPs or network-status say so.
func (f *adoptFacts) denies(addr netip.Addr) string {
	for _, ip := range f.Pod.Status.PodIPs {
		if ip.IP == addr.String() {
			return ""
		}
	}
	all, err := ipam.NetworkStatus(f.Pod.Annotations)
	if err != nil || len(all) == 0 {
		return "neither podIPs nor a network-status of its pod has it"
	}
	for _, n := range all {
		switch {
		case !slices.Contains(n.IPs, addr.String()):
		case n.Interface != "" && n.Interface != f.Link.Name:
			return fmt.Sprintf("it is on interface %s, and the network-status of its pod says %s", f.Link.Name, n.Interface)
		case n.MAC != "" && !strings.EqualFold(n.MAC, f.Link.MAC.String()):
			return fmt.Sprintf("interface %s has the MAC %s, and the network-status of its pod says %s", f.Link.Name, f.Link.MAC, n.MAC)
		default:
			return ""
		}
	}
	return "neither podIPs nor the network-status of its pod has it"
}

// unheld returns an address of the interface that no hold of the pod has. An interface is adopted with all its
// addresses. Those that a kernel makes of router advertisements have no record.
func (f *adoptFacts) unheld(at pod.Place) netip.Addr {
	for _, addr := range at.Addresses {
		isMade := addr.Is6() && f.Pool.Spec.RouterAdvertisements == v1alpha1.RoutersAccepted
		if !addr.IsLinkLocalUnicast() && !isMade && !slices.Contains(f.Ours, addr) {
			return addr
		}
	}
	return netip.Addr{}
}
