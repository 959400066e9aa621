// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/internal/inventory"
)

// sharedMACs returns the MACs that holders of a pool have on several nodes, each with its pods, without
// those that the pool allows, such as that of VRRP.
func sharedMACs(pool *v1alpha1.IPPool, leases []v1alpha1.IPLease) (found []string) {
	first, shared := make(map[v1alpha1.MAC]*v1alpha1.IPLeaseSpec, len(leases)), map[v1alpha1.MAC][]string{}
	for i := range leases {
		s := &leases[i].Spec
		if s.State != v1alpha1.StateBound || s.Holder == nil {
			continue
		}
		o, known := first[s.Holder.MAC]
		if !known {
			first[s.Holder.MAC] = s
		} else if inventory.ShareMAC(o, s) && !pool.AllowsMAC(s.Holder.MAC) {
			shared[s.Holder.MAC] = append(shared[s.Holder.MAC], inventory.PlaceOf(o), inventory.PlaceOf(s))
		}
	}
	for mac, places := range shared {
		slices.Sort(places)
		found = append(found, mac+" ("+condition.Few(slices.Compact(places), ", ")+")")
	}
	// Each change of a message is a write.
	slices.Sort(found)
	return found
}

func sharedMAC(macs []string) metav1.Condition {
	return condition.If(len(macs) > 0, v1alpha1.ConditionSharedMAC, reasonManyNodes,
		"MACs that pods have on several nodes: "+condition.Few(macs, "; ")+
			"; other hosts reach only one of the pods: give the others another MAC, or list the MAC in spec.sourceGuardAllow.macs if they share it on purpose")
}
