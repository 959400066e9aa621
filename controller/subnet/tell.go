// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fenceline/fenceline/internal/owner"
)

// tell reports applications that lack addresses in their events, once for each message. The client
// of the API merges events that differ only in their note. So an event names an IPSubnet as
// related: a new message changes its status, and so its version.
func (r *Reconciler) tell(p Plan) {
	told := map[string]string{}
	for _, u := range p.Unserved {
		key := fmt.Sprintf("%s %s %t", u.Ref, u.Interface, u.IPv6)
		told[key] = u.Message
		if r.memory.told[key] != u.Message {
			r.Events.Eventf(r.object(u.Ref), p.first(u.Subnets), corev1.EventTypeWarning, "SubnetUnserved", "Plan", "%s", u.Message)
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

// first returns the first IPSubnet of a list that exists, or nil.
func (p Plan) first(names []string) runtime.Object {
	for _, name := range names {
		if g := p.Grounds[name]; g != nil {
			return g.IPSubnet
		}
	}
	return nil
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
