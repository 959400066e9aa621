// SPDX-License-Identifier: Apache-2.0

package hostlink

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/test/check"
)

func TestWhichLoadBalancersANodeServes(t *testing.T) {
	service := func(policy corev1.ServiceExternalTrafficPolicy, ips ...string) (s corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, policy
		for _, ip := range ips {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
		return s
	}
	proxied, port := service("", "10.0.0.7"), service("", "10.0.0.8")
	external := service("")
	external.Spec.ExternalIPs = []string{"10.0.0.5", "10.0.0.6"}
	proxied.Status.LoadBalancer.Ingress[0].IPMode = ptr.To(corev1.LoadBalancerIPModeProxy)
	port.Spec.Type = corev1.ServiceTypeNodePort
	got := Balancers([]corev1.Service{
		service(corev1.ServiceExternalTrafficPolicyCluster, "10.0.0.2", "fd00::2"), service("", "10.0.0.1"), service("", "10.0.0.1"),
		service(corev1.ServiceExternalTrafficPolicyLocal, "10.0.0.3"), service(corev1.ServiceExternalTrafficPolicyLocal, "10.0.0.4"),
		service("", ""), proxied, port, external,
	}, func(a netip.Addr) bool { return slices.Contains(addrs("10.0.0.4", "10.0.0.5"), a) })
	check.List(t, got, addrs("10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5", "fd00::2"), "served:")
}
