// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/owner"
)

// tell reports in events of the applications which of them lack addresses, once for each message.
func (r *Reconciler) tell(p Plan) {
	told := map[string]string{}
	for _, u := range p.Unserved {
		key := u.Ref.String() + " " + u.Interface
		told[key] = u.Message
		if r.memory.told[key] != u.Message {
			r.Events.Eventf(r.object(u.Ref), nil, corev1.EventTypeWarning, "SubnetUnserved", "Plan", "%s", u.Message)
		}
	}
	r.memory.told = told
}

// object returns an application for an event. It need not exist any more.
func (r *Reconciler) object(ref owner.Ref) runtime.Object {
	o := &metav1.PartialObjectMetadata{}
	version := "v1"
	if mapping, err := r.Owners.Mapper.RESTMapping(ref.GroupKind()); err == nil {
		version = mapping.GroupVersionKind.Version
	}
	o.SetGroupVersionKind(ref.GroupKind().WithVersion(version))
	o.Namespace, o.Name, o.UID = ref.Namespace, ref.Name, ref.UID
	return o
}

// refOfPool returns the application of a pool.
func refOfPool(pool *v1alpha1.IPPool) owner.Ref {
	a := pool.Spec.Application
	return owner.Ref{Group: a.APIGroup, Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}
}

// unservedBy counts the applications that name an IPSubnet and lack addresses.
func (p Plan) unservedBy(subnet string) int {
	n := 0
	for _, u := range p.Unserved {
		if slices.Contains(u.Subnets, subnet) {
			n++
		}
	}
	return n
}
