// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Balancers returns the addresses of Services of type LoadBalancer that the node serves. Each node serves
// those with externalTrafficPolicy Cluster. One with the policy Local is served by the nodes with a pod of
// it, of which one announces it. announced reports whether this node does. A balancer with ipMode Proxy
// wants the traffic itself.
func Balancers(services []corev1.Service, announced func(netip.Addr) bool) (all []netip.Addr) {
	for i := range services {
		s := &services[i]
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			addr, err := netip.ParseAddr(ingress.IP)
			if err != nil || ptr.Deref(ingress.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeProxy {
				continue
			}
			if s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal || announced(addr) {
				all = append(all, addr)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// within returns the addresses that lie in one of the subnets: the pod looks for these on its segment,
// where it does not reach its own node. It reaches all others by a router.
func within(addrs []netip.Addr, subnets []netip.Prefix) []netip.Addr {
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		return !slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Contains(a) })
	})
}
