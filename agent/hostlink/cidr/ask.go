// SPDX-License-Identifier: Apache-2.0

package cidr

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// named comes before the range in the refusal of Kubernetes 1.32 (ipallocator.ErrNotInRange).
const named = "The range of valid IPs is "

// ask sets the service CIDRs of an API server without ServiceCIDR objects. This server has one range
// of each family, and names it when it refuses a Service with an address outside. The Services are
// dry runs, so none is made.
func (s *Services) ask(ctx context.Context) error {
	var all []netip.Prefix
	for family, outside := range map[corev1.IPFamily]string{corev1.IPv4Protocol: "127.0.0.1", corev1.IPv6Protocol: "::1"} {
		err := s.client.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "fenceline-service-cidrs"},
			Spec: corev1.ServiceSpec{
				ClusterIP: outside, IPFamilies: []corev1.IPFamily{family}, Ports: []corev1.ServicePort{{Port: 80}},
			},
		}, client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("%w: ask for the range of %s: %w", ErrNotServed, family, err)
		}
		if err == nil || !apierrors.IsInvalid(err) {
			return fmt.Errorf("ask the API server for the range of %s by a Service with the address %s: %w", family, outside, err)
		}
		_, text, ok := strings.Cut(err.Error(), named)
		if !ok {
			continue // the cluster has no Services of this family
		}
		p, err := ParseService(text)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotServed, err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return fmt.Errorf("%w: it names no range", ErrNotServed)
	}
	s.set(all, nil)
	return nil
}
