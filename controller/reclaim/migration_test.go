// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

func launcher(name string, age time.Duration) podview.Pod {
	return podview.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
		},
		Spec: podview.Spec{NodeName: "n2"},
	}
}

// R15: the address of a virtual machine goes to the target of a migration when the source is paused for
// good, and not before.
func TestAMigrationHandsTheAddressOver(t *testing.T) {
	now := time.Unix(1e9, 0)
	source, target := launcher("a", time.Hour), launcher("b", time.Minute)
	holder := owner.MachinePod("shop", "a", "a", "db")
	migrating := owner.Migration{Source: "a", Target: "b", Mode: "PreCopy"}
	runs := owner.Migration{Source: "a", Target: "b", TargetReady: true}
	handOver := Action{Kind: Quarantine, Reason: v1alpha1.ReasonMigrated, Verifier: "n2"}
	for _, row := range []struct {
		name    string
		m       Migration
		source  *podview.Pod
		want    Action
		decides bool
	}{
		{"no target", Migration{State: runs}, &source, Action{}, false},
		{"the memory is copied", Migration{Target: &target, State: migrating}, &source, Action{}, false},
		{"the machine runs in the target", Migration{Target: &target, State: runs}, &source, handOver, true},
		{"the source pod is gone: the usual rules apply", Migration{Target: &target, State: runs}, nil, Action{}, false},
		{"the machine cannot be read", Migration{Target: &target, Unknown: "no right"}, &source,
			Action{Kind: Wait, Until: now.Add(ownerPeriod), Tell: true}, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := Facts{Now: now, Migration: row.m, Pod: View[podview.Pod]{Known: true, Object: row.source},
				Lease: &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{State: v1alpha1.StateBound, NodeName: "n1", Holder: &holder}}}
			got, ok := decideHandOver(f)
			got.Why = ""
			check.That(t, ok == row.decides && got == row.want, "%+v, %v, want %+v, %v", got, ok, row.want, row.decides)
			if row.m.Target != nil && !row.decides && row.source != nil {
				a := Decide(withNode(f))
				check.That(t, a.Kind == Wait && a.Until.Equal(now.Add(migrationPeriod)), "the machine is read again by %+v", a)
			}
		})
	}
}

func withNode(f Facts) Facts {
	f.Node.Known, f.Policy.Enabled = true, true
	f.Node.Object = node(corev1.ConditionTrue)
	return f
}

func TestTheTargetIsTheLatestPodThatMayRun(t *testing.T) {
	holder := owner.MachinePod("shop", "a", "a", "db")
	first, second, unscheduled, ending := launcher("b", time.Hour), launcher("c", time.Minute), launcher("d", 0), launcher("e", 0)
	unscheduled.Spec.NodeName = ""
	ending.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	got := latestTarget([]podview.Pod{second, launcher("a", 0), first, unscheduled, ending}, &holder)
	check.That(t, got != nil && got.Name == "c", "the target is %v", got)
	if got := latestTarget([]podview.Pod{launcher("a", 0), ending}, &holder); got != nil {
		t.Errorf("the target is %s", got.Name)
	}
}
