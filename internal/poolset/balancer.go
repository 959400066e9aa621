// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// kindService is the kind of a reservation that stands for a Service.
const kindService = "Service"

// Reservations returns the reservations of the cluster, and those that stand for Services of type LoadBalancer. They
// may belong to a cache: they are read-only.
func Reservations(ctx context.Context, reader client.Reader) ([]v1alpha1.ReservedIP, error) {
	var all v1alpha1.ReservedIPList
	if err := reader.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list reservations: %w", err)
	}
	balancers, err := Balancers(ctx, reader)
	return append(all.Items, balancers...), err
}

// Balancers returns a reservation for nobody for each Service of type LoadBalancer that has an address: while no
// pod is ready, no node announces it, and a probe finds nobody. These addresses are in the status, which the author of
// a Service cannot write. Its spec.externalIPs, which he can, do not count. A cache needs an index of spec.type.
func Balancers(ctx context.Context, reader client.Reader) (all []v1alpha1.ReservedIP, err error) {
	var services corev1.ServiceList
	err = reader.List(ctx, &services, client.MatchingFields{"spec.type": string(corev1.ServiceTypeLoadBalancer)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Services of type LoadBalancer: %w", err)
	}
	for i := range services.Items {
		s, r := &services.Items[i], v1alpha1.ReservedIP{}
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			if _, err := parseAddr(ingress.IP); err == nil { // others have a hostname
				r.Spec.IPs = append(r.Spec.IPs, ingress.IP)
			}
		}
		if r.Kind, r.Namespace, r.Name = kindService, s.Namespace, s.Name; len(r.Spec.IPs) > 0 {
			all = append(all, r)
		}
	}
	return all, nil
}

// IsService reports whether a reservation stands for a Service.
func IsService(r *v1alpha1.ReservedIP) bool { return r.Kind == kindService }

// Title names a reservation for people: "ReservedIP routers", "Service shop/web of type LoadBalancer".
func Title(r *v1alpha1.ReservedIP) string {
	if IsService(r) {
		return "Service " + r.Namespace + "/" + r.Name + " of type LoadBalancer"
	}
	return "ReservedIP " + r.Name
}
