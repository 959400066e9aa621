// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// servicePort leads to the HTTP port of a pod. The ports of its echo servers stay what they are.
const servicePort = 80

// service is a Service of both families.
type service struct {
	name string
	// addrs are the cluster IPs, of which a headless one has none.
	addrs []netip.Addr
	// http, udp and tcp are the ports of nodes, zero without any.
	http, udp, tcp uint16
}

// serve makes a Service for pods with these labels.
func (a *act) serve(ctx context.Context, name string, pods map[string]string, change func(*corev1.ServiceSpec)) (service, error) {
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: pods, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{
				{Name: "http", Port: servicePort, TargetPort: intstr.FromInt32(httpPort)},
				{Name: "udp", Port: appPort, Protocol: corev1.ProtocolUDP},
				{Name: "tcp", Port: appPort},
			},
		},
	}
	if change != nil {
		change(&object.Spec)
	}
	if err := a.api.Create(ctx, object); err != nil {
		return service{}, fmt.Errorf("make Service %s: %w", name, err)
	}
	port := func(i int) uint16 { return uint16(object.Spec.Ports[i].NodePort) }
	s := service{name: name, http: port(0), udp: port(1), tcp: port(2)}
	for _, ip := range object.Spec.ClusterIPs {
		if ip == corev1.ClusterIPNone {
			continue
		}
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			return s, fmt.Errorf("read the addresses of Service %s: %w", name, err)
		}
		s.addrs = append(s.addrs, addr)
	}
	return s, nil
}

func headless(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }
func onNodes(s *corev1.ServiceSpec)  { s.Type = corev1.ServiceTypeNodePort }
func toOnePod(s *corev1.ServiceSpec) { s.SessionAffinity = corev1.ServiceAffinityClientIP }
func onOwnNode(s *corev1.ServiceSpec) {
	onNodes(s)
	s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}
