// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/test/check"
)

func TestScarcity(t *testing.T) {
	warm := func(n int) []v1alpha1.IPLease { return leasesFrom("10.6.0.1", n, v1alpha1.StateWarm) }
	bound := func(n int) []v1alpha1.IPLease { return leasesFrom("10.6.0.1", n, v1alpha1.StateBound) }
	for _, row := range []struct {
		name   string
		warm   *int64
		served int
		was    bool
		leases []v1alpha1.IPLease
		want   bool
	}{
		// A /28 has 14 addresses.
		{"without warm leases nothing is scarce", nil, 100, false, nil, false},
		{"with none wanted nothing is scarce", ptr.To[int64](0), 100, true, bound(14), false},
		{"as many left as all agents keep ready", ptr.To[int64](2), 7, false, nil, false},
		{"fewer left than all agents keep ready", ptr.To[int64](2), 8, false, nil, true},
		{"what is bound is not left", ptr.To[int64](2), 7, false, bound(1), true},
		{"what is warm is left, or giving it up would bring it back", ptr.To[int64](2), 7, false, warm(14), false},
		{"warm ones outside of the pool are not left", ptr.To[int64](2), 7, false, leasesFrom("10.6.0.20", 9, v1alpha1.StateWarm), false},
		{"one agent keeps nobody from an address", ptr.To[int64](2), 1, false, bound(14), false},
		{"one agent that wants more than there is", ptr.To[int64](200), 1, false, nil, false},
		{"two agents that want more than there is", ptr.To[int64](200), 2, false, nil, true},
		{"no agent", ptr.To[int64](2), 0, true, bound(14), false},

		{"it begins below what all agents keep ready: 8 left for 4 agents", ptr.To[int64](2), 4, false, bound(6), false},
		{"7 left for 4 agents", ptr.To[int64](2), 4, false, bound(7), true},
		{"it does not end with one more: 8 left", ptr.To[int64](2), 4, true, bound(6), true},
		{"nor just below a quarter more: 9 left", ptr.To[int64](2), 4, true, bound(5), true},
		{"it ends with a quarter more: 10 left", ptr.To[int64](2), 4, true, bound(4), false},
		{"at least with one more: 2 left for 2 agents", ptr.To[int64](1), 2, true, bound(12), true},
		{"3 left for 2 agents", ptr.To[int64](1), 2, true, bound(11), false},
		{"of a pool with no quarter more it ends when nothing is in use", ptr.To[int64](2), 7, true, nil, false},
		{"and not before", ptr.To[int64](2), 7, true, bound(1), true},
		{"of a pool that is too small it never ends", ptr.To[int64](2), 8, true, nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := subnetPool("blue", "10.6.0.0/28", 0)
			pool.Spec.Warm, pool.Status.Scarce = row.warm, row.was
			r := NewReport(Facts{Pool: &pool, Leases: row.leases, Agents: 100, Served: row.served, Now: noon()})
			check.That(t, r.Status.Scarce == row.want, "scarce %v with %d free, want %v", r.Status.Scarce, r.Free, row.want)
		})
	}
}

// TestScarcityDoesNotFlap: agents that give up when asked and keep ready
// otherwise come to rest, whatever the pool has and is used for.
func TestScarcityDoesNotFlap(t *testing.T) {
	const agents, each = 4, 2
	for used := range 15 {
		pool := subnetPool("blue", "10.6.0.0/28", 0)
		pool.Spec.Warm = ptr.To[int64](each)
		var changes []bool
		for range 20 {
			n := 0
			if !pool.Status.Scarce {
				n = min(agents*each, 14-used)
			}
			leases := leasesFrom("10.6.0.1", used, v1alpha1.StateBound)
			for i, l := range leasesFrom("10.6.0.1", 14, v1alpha1.StateWarm) {
				if i >= used && i < used+n {
					leases = append(leases, l)
				}
			}
			scarce := NewReport(Facts{Pool: &pool, Leases: leases, Served: agents, Now: noon()}).Status.Scarce
			if scarce != pool.Status.Scarce {
				changes = append(changes, scarce)
			}
			pool.Status.Scarce = scarce
		}
		check.That(t, len(changes) <= 1, "with %d of 14 in use: %v", used, changes)
		// While it is not scarce, every agent finds an address although all others keep theirs.
		if !pool.Status.Scarce && 14-used-(agents-1)*each < 1 {
			t.Errorf("with %d of 14 in use it is not scarce, and the others keep all of the rest", used)
		}
	}
}

func TestServedNodes(t *testing.T) {
	var agents []podview.Pod
	for _, node := range []string{"n1", "n2", "n3"} {
		agents = append(agents, podview.Pod{Spec: podview.Spec{NodeName: node}})
	}
	racks := map[string]labels.Set{"n1": {"rack": "a"}, "n2": {"rack": "b"}}
	rack := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"rack": name}}
	}
	for _, row := range []struct {
		name string
		spec v1alpha1.IPPoolSpec
		want int
	}{
		{"a pool for all nodes", v1alpha1.IPPoolSpec{}, 3},
		{"an empty nodeAffinity is for all nodes", v1alpha1.IPPoolSpec{NodeAffinity: &metav1.LabelSelector{}}, 3},
		{"nodeName", v1alpha1.IPPoolSpec{NodeName: []string{"n3", "n1", "n9"}}, 2},
		{"nodeAffinity", v1alpha1.IPPoolSpec{NodeAffinity: rack("a")}, 1},
		{"nodeAffinity that no node meets", v1alpha1.IPPoolSpec{NodeAffinity: rack("c")}, 0},
		{"nodeName goes before nodeAffinity", v1alpha1.IPPoolSpec{NodeName: []string{"n3"}, NodeAffinity: rack("a")}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := served(&v1alpha1.IPPool{Spec: row.spec}, agents, racks)
			check.That(t, got == row.want, "%d nodes, want %d", got, row.want)
		})
	}
}
