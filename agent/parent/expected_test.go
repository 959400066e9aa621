// SPDX-License-Identifier: Apache-2.0

package parent

import (
	"slices"
	"testing"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// A node is blind only if there is another node to hear: one with an address of the same subnet and
// network.
func TestWhichParentsShouldHearAnotherNode(t *testing.T) {
	const eth1, eth2 = 7, 8
	poolOf := func(name, subnet string, bound int64, change ...func(*v1alpha1.IPPool)) v1alpha1.IPPool {
		p := pool(name)
		p.Spec.Subnet, p.Status.Bound = subnet, bound
		for _, c := range change {
			c(p)
		}
		return *p
	}
	network := func(p *v1alpha1.IPPool) { p.Spec.Network = "lab" }
	observe := func(p *v1alpha1.IPPool) {
		p.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: v1alpha1.ModeObserve}
	}
	own := poolOf("own", "10.0.0.0/24", 1)
	for _, row := range []struct {
		name   string
		parent int
		pools  []v1alpha1.IPPool
		want   bool
	}{
		{"the pod of this node is the only one", eth1, []v1alpha1.IPPool{own}, false},
		{"another node has an address of the pool", eth1, []v1alpha1.IPPool{poolOf("own", "10.0.0.0/24", 2)}, true},
		{"another node has an address of another pool of the subnet", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.0.0/24", 1)}, true},
		{"nothing of the other pool is in use", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.0.0/24", 0)}, false},
		{"another subnet", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.1.0/24", 1)}, false},
		{"another network", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.0.0/24", 1, network)}, false},
		{"holders that send no claims", eth1, []v1alpha1.IPPool{own, poolOf("b", "10.0.0.0/24", 1, observe)}, false},
		{"no pod of this node is on the parent", eth2, []v1alpha1.IPPool{poolOf("own", "10.0.0.0/24", 2)}, false},
		{"the pool has not been counted since the pod began", eth1, []v1alpha1.IPPool{poolOf("own", "10.0.0.0/24", 0)}, false},
	} {
		pod := &journal.Entry{ParentIndex: eth1, Addresses: []journal.Address{{Pool: "own"}}}
		if got := expected(row.parent, slices.Values([]*journal.Entry{pod}), row.pools); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}
