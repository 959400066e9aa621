// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
)

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

// isScarce reports whether the Warm leases of one node may keep another node from getting an
// address. A pool is scarce if fewer addresses are left than all agents together keep ready. Warm
// leases count as left. If they did not, their release would end the scarcity, and agents would
// make them again.
//
// A scarce pool stays scarce until a quarter more addresses are left, if the pool has so many. A single
// pod that comes and goes then does not make every agent release its leases and probe again.
func isScarce(f Facts, free, total int64) bool {
	warm := ptr.Deref(f.Pool.Spec.Warm, 0)
	// With a single agent, every ADD can use every Warm lease.
	if warm == 0 || f.Served < 2 {
		return false
	}
	enough := int64(f.Served) * warm
	if f.Pool.Status.Scarce {
		more := enough + max(1, enough/4)
		enough = max(enough, min(more, total))
	}
	return free < enough
}

// asksForLabels reports whether the scarcity or the stock of the pool depends on the labels of nodes.
func asksForLabels(pool *v1alpha1.IPPool) bool {
	return pool.Spec.NodeAffinity != nil && len(pool.Spec.NodeName) == 0 && ptr.Deref(pool.Spec.Warm, 1) > 0
}

// served returns the number of agents on nodes that the pool allows. labelsOf has the labels of the nodes.
func served(pool *v1alpha1.IPPool, agents []podview.Pod, labelsOf map[string]labels.Set) int {
	serves, n := serving(&pool.Spec), 0
	for i := range agents {
		if node := agents[i].Spec.NodeName; serves(node, labelsOf[node]) {
			n++
		}
	}
	return n
}
