// SPDX-License-Identifier: Apache-2.0

package pool

import "github.com/fenceline/fenceline/apis/v1alpha1"

// The rule for pools whose spec.warm is unset.
const (
	// mostStock is the greatest stock. One address is for the next pod, and one for the pod that
	// comes while the first one is replaced: a proof takes seconds.
	mostStock = 2
	// leastTotal is the size of the smallest pool with a stock. In a smaller pool every address counts.
	leastTotal = 32
	// keepShare and beginShare are multiples of the addresses that all agents together keep. A stock
	// begins where more than beginShare times as many addresses are left. It ends where no more than
	// keepShare times as many are left. The gap keeps a pod that comes and goes from making all agents
	// release their leases and probe again.
	keepShare, beginShare = 4, 5
)

// stock returns the number of addresses that each node may keep ready on each parent. left is the
// number of addresses of the pool without a lease or with a Warm one. If Warm leases did not count as
// left, stocks would end because they were filled.
//
// In mode Off no address is probed, so a Warm address would save no time.
func stock(f Facts, left, total int64) int64 {
	switch {
	case f.Pool.Spec.Warm != nil:
		return *f.Pool.Spec.Warm
	case total < leastTotal, f.Pool.ConflictMode() == v1alpha1.ModeOff:
		return 0
	}
	for n := int64(mostStock); n > 0; n-- {
		share := int64(beginShare)
		if n <= f.Pool.Status.Stock {
			share = keepShare
		}
		// A pool whose agents are not counted yet has at least one.
		if left > share*n*int64(max(f.Served, 1)) {
			return n
		}
	}
	return 0
}
