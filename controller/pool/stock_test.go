// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// TestStock is the specification of the stocks of pools whose spec.warm is unset.
func TestStock(t *testing.T) {
	warm := func(n int) []v1alpha1.IPLease { return leasesFrom("10.6.0.1", n, v1alpha1.StateWarm) }
	bound := func(n int) []v1alpha1.IPLease { return leasesFrom("10.6.0.1", n, v1alpha1.StateBound) }
	const slash26, slash27, slash28 = "10.6.0.0/26", "10.6.0.0/27", "10.6.0.0/28" // 62, 30 and 14 addresses
	for _, row := range []struct {
		name   string
		subnet string
		warm   *int64
		mode   v1alpha1.ConflictMode
		served int
		was    int64
		leases []v1alpha1.IPLease
		want   int64
	}{
		{"a pool with room keeps two for each node", slash26, nil, "", 3, 0, nil, 2},
		{"what the pool says counts: none", slash26, ptr.To[int64](0), "", 3, 2, nil, 0},
		{"what the pool says counts: five", slash28, ptr.To[int64](5), "", 3, 0, bound(14), 5},
		{"a small pool keeps none, even for one node", slash28, nil, "", 1, 0, nil, 0},
		{"30 addresses are few", slash27, nil, "", 1, 2, nil, 0},
		{"in mode Off no address is probed", slash26, nil, v1alpha1.ModeOff, 3, 2, nil, 0},
		{"in mode Observe addresses are probed", slash26, nil, v1alpha1.ModeObserve, 3, 0, nil, 2},
		{"a pool whose agents are not counted has one at least", slash26, nil, "", 0, 0, nil, 2},

		// Two on each of 3 nodes are 6: it begins above 30 and ends at 24.
		{"it begins above five times what all keep: 31 left", slash26, nil, "", 3, 0, bound(31), 2},
		{"not at five times: 30 left", slash26, nil, "", 3, 0, bound(32), 1},
		{"it goes on above four times: 25 left", slash26, nil, "", 3, 2, bound(37), 2},
		{"it falls to one at four times: 24 left", slash26, nil, "", 3, 2, bound(38), 1},
		{"it does not come back with one address: 25 left", slash26, nil, "", 3, 1, bound(37), 1},
		// One on each of 3 nodes are 3: it begins above 15 and ends at 12.
		{"one begins above five times: 16 left", slash26, nil, "", 3, 0, bound(46), 1},
		{"not at five times: 15 left", slash26, nil, "", 3, 0, bound(47), 0},
		{"one goes on above four times: 13 left", slash26, nil, "", 3, 1, bound(49), 1},
		{"it ends at four times: 12 left", slash26, nil, "", 3, 1, bound(50), 0},
		{"a full pool keeps none", slash26, nil, "", 3, 2, bound(62), 0},
		{"what is Warm is left, so that full stocks do not end stocks", slash26, nil, "", 3, 2, warm(37), 2},
		{"many nodes on few addresses keep none", slash26, nil, "", 16, 0, nil, 0},
		{"fewer nodes keep one", slash26, nil, "", 12, 0, nil, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := subnetPool("blue", row.subnet, 0)
			pool.Spec.Warm, pool.Status.Stock = row.warm, row.was
			pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: row.mode}
			r := NewReport(Facts{Pool: &pool, Leases: row.leases, Agents: 100, Served: row.served, Now: noon()})
			if r.Status.Stock != row.want {
				t.Errorf("stock %d with %d left, want %d", r.Status.Stock, r.Free, row.want)
			}
		})
	}
}

// However many pods a pool has, agents that follow its stock come to rest, and a pod of any node
// finds an address that is not Warm on another node.
func TestStocksComeToRestAndKeepNoPodFromAnAddress(t *testing.T) {
	const total = 62
	for agents := 1; agents <= 8; agents++ {
		for used := range total + 1 {
			pool := subnetPool("blue", "10.6.0.0/26", 0)
			var changes []int64
			for range 10 {
				kept := min(int(pool.Status.Stock)*agents, total-used)
				leases := append(leasesFrom("10.6.0.1", used, v1alpha1.StateBound), leasesFrom("10.6.0.1", total, v1alpha1.StateWarm)[used:used+kept]...)
				if stock := NewReport(Facts{Pool: &pool, Leases: leases, Served: agents, Now: noon()}).Status.Stock; stock != pool.Status.Stock {
					changes = append(changes, stock)
					pool.Status.Stock = stock
				}
			}
			if len(changes) > 1 {
				t.Errorf("with %d agents and %d addresses in use: %v", agents, used, changes)
			}
			if kept := int(pool.Status.Stock) * agents; kept > 0 && total-used-kept < 3*kept {
				t.Errorf("with %d agents and %d addresses in use, %d are Warm and only %d free", agents, used, kept, total-used-kept)
			}
		}
	}
}
