// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/internal/owner"
)

const (
	// listedPools and listedUnserved bound the lists of a status, which every agent receives.
	listedPools    = 64
	listedUnserved = 32
)

// The reasons of conditions.
const (
	reasonReady    = "Ready"
	reasonDeleting = "Deleting"
	reasonInvalid  = "Invalid"
	reasonShared   = "SharedAddresses"
	reasonNoLeft   = "NoAddress"
	reasonLeft     = "AddressLeft"
)

// Status returns the status of an IPSubnet after a plan.
func (p Plan) Status(name string, now metav1.Time) v1alpha1.IPSubnetStatus {
	g := p.Subnets[name]
	s := v1alpha1.IPSubnetStatus{ObservedGeneration: g.Generation, Total: g.offered.Count(), Free: g.free.Count()}
	for _, pl := range p.Managed {
		if pl.Spec.IPSubnet == name {
			s.PoolCount++
			s.Allocated += pl.ips.Count()
			s.Pools = append(s.Pools, v1alpha1.SubnetPool{Name: pl.Name, Addresses: pl.ips.Count()})
		}
	}
	slices.SortFunc(s.Pools, func(a, b v1alpha1.SubnetPool) int { return strings.Compare(a.Name, b.Name) })
	s.Pools = s.Pools[:min(len(s.Pools), listedPools)]
	for pool, set := range p.Carving[name] {
		s.Carving = append(s.Carving, v1alpha1.Carving{Pool: pool, IPs: set.Entries()})
	}
	slices.SortFunc(s.Carving, func(a, b v1alpha1.Carving) int { return strings.Compare(a.Pool, b.Pool) })
	for _, u := range p.Unserved {
		if slices.Contains(u.Subnets, name) && len(s.Unserved) < listedUnserved {
			s.Unserved = append(s.Unserved, u.Unserved)
		}
	}
	s.Conditions = condition.Set(g.Status.Conditions, g.Generation, now, ready(g), overlapping(g), exhausted(g))
	return s
}

func ready(g *subnetState) metav1.Condition {
	switch {
	case g.DeletionTimestamp != nil:
		return condition.False(v1alpha1.ConditionReady, reasonDeleting, "no pool gets addresses any more")
	case g.problem != nil:
		return condition.False(v1alpha1.ConditionReady, reasonInvalid, condition.Problems(g.problem))
	}
	return condition.True(v1alpha1.ConditionReady, reasonReady, "")
}

func overlapping(g *subnetState) metav1.Condition {
	var parts []string
	if len(g.subnets) > 0 {
		parts = append(parts, "the older of two IPSubnets has the common addresses: "+condition.Few(g.subnets, ", "))
	}
	if len(g.drawn) > 0 {
		parts = append(parts, "pools that people made have addresses of this IPSubnet, and keep them: "+condition.Few(g.drawn, ", "))
	}
	return condition.If(len(parts) > 0, v1alpha1.ConditionOverlapping, reasonShared, strings.Join(parts, "; "))
}

func exhausted(g *subnetState) metav1.Condition {
	switch {
	case g.offered.Len() == 0:
		return condition.False(v1alpha1.ConditionExhausted, condition.None, "")
	case g.free.Len() == 0:
		return condition.True(v1alpha1.ConditionExhausted, reasonNoLeft,
			fmt.Sprintf("pools have all %d addresses: add addresses to ips, or end applications", g.offered.Len()))
	}
	return condition.False(v1alpha1.ConditionExhausted, reasonLeft, "")
}

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
		if g := p.Subnets[name]; g != nil {
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
