// SPDX-License-Identifier: Apache-2.0

package cache

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// ReservationChanges passes changes of the addresses of ReservedIPs, and of Services of type LoadBalancer.
func ReservationChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, isService := e.ObjectOld.(*corev1.Service)
		if !isService {
			return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
		}
		return !equality.Semantic.DeepEqual(was.Status, e.ObjectNew.(*corev1.Service).Status)
	}}
}

// AddressChanges passes changes of the fields that decide which pool hands out an address.
func AddressChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, is := e.ObjectOld.(*v1alpha1.IPPool), e.ObjectNew.(*v1alpha1.IPPool)
		return was.Generation != is.Generation || was.Status.ObservedGeneration != is.Status.ObservedGeneration ||
			!equality.Semantic.DeepEqual(was.Status.Withheld, is.Status.Withheld)
	}}
}
