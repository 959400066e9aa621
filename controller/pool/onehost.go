// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
)

// hostsOfMany returns the MACs that are recorded for ManyAddresses leases of a pool, or for more. A
// MAC that the pool ignores does not count. In mode Observe the pods keep such addresses, so their
// leases count as well.
func hostsOfMany(pool *v1alpha1.IPPool, leases []v1alpha1.IPLease) (macs []string) {
	seen := map[v1alpha1.MAC]int{}
	for i := range leases {
		spec := &leases[i].Spec
		mac := spec.ConflictMAC()
		if pool.ConflictMode() == v1alpha1.ModeObserve && spec.State == v1alpha1.StateBound && spec.Conflict != nil {
			mac = spec.Conflict.MAC
		}
		if mac == "" || pool.IgnoresMAC(mac) {
			continue
		}
		if seen[mac]++; seen[mac] == v1alpha1.ManyAddresses {
			macs = append(macs, mac)
		}
	}
	// Each change of a message is a write.
	slices.Sort(macs)
	return macs
}

func answeredByOne(macs []string) metav1.Condition {
	if len(macs) == 0 {
		return condition.False(v1alpha1.ConditionAnsweredByOne, reasonNone, "")
	}
	return condition.True(v1alpha1.ConditionAnsweredByOne, reasonManyConflicts, "hosts that answer for many addresses: "+condition.Few(macs, ", ")+
		"; if such a host is a proxy, add its MAC to spec.conflictDetection.ignoreMACs; if it owns the addresses, exclude them by spec.excludeIPs")
}
