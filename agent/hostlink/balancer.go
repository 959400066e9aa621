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
// it, of which one announces it. announced reports whether this node does. Anybody who may make a Service
// writes its externalIPs (CVE-2020-8554), so these count only if the node announces them to the segment. A
// balancer with ipMode Proxy wants the traffic itself.
func Balancers(services []corev1.Service, announced func(netip.Addr) bool) (all []netip.Addr) {
	add := func(text string, everywhere bool) {
		if addr, err := netip.ParseAddr(text); err == nil && (everywhere || announced(addr)) {
			all = append(all, addr)
		}
	}
	for i := range services {
		s := &services[i]
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, ip := range s.Spec.ExternalIPs {
			add(ip, false)
		}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if ptr.Deref(ingress.IPMode, corev1.LoadBalancerIPModeVIP) != corev1.LoadBalancerIPModeProxy {
				add(ingress.IP, s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
