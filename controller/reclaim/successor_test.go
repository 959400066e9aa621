// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/test/check"
)

func TestSucceeds(t *testing.T) {
	of := func(address string, state v1alpha1.LeaseState) *v1alpha1.IPLease {
		return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address}, Spec: v1alpha1.IPLeaseSpec{
			Address: address, State: state, Holder: &v1alpha1.Holder{
				Namespace: "shop", Pod: "web-0", Interface: "eth0", OwnerKind: "StatefulSet", OwnerName: "web",
			},
		}}
	}
	kept := of("10.0.0.2", v1alpha1.StateRetained)
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.IPLease)
		want   bool
	}{
		{"the next pod of the name has another address", func(*v1alpha1.IPLease) {}, true},
		{"it is the very lease", func(l *v1alpha1.IPLease) { l.Name = kept.Name }, false},
		{"its take-over is not confirmed", func(l *v1alpha1.IPLease) { l.Spec.Previous = &v1alpha1.PreviousHolder{} }, false},
		{"it is Retained too", func(l *v1alpha1.IPLease) { l.Spec.State = v1alpha1.StateRetained }, false},
		{"it is being deleted", func(l *v1alpha1.IPLease) { l.DeletionTimestamp = &metav1.Time{} }, false},
		{"it has no holder", func(l *v1alpha1.IPLease) { l.Spec.Holder = nil }, false},
		{"it is of the other IP family", func(l *v1alpha1.IPLease) { l.Name, l.Spec.Address = "fd00--2", "fd00::2" }, false},
		{"it is for another interface", func(l *v1alpha1.IPLease) { l.Spec.Holder.Interface = "net1" }, false},
		{"it is of another namespace", func(l *v1alpha1.IPLease) { l.Spec.Holder.Namespace = "bank" }, false},
		{"it is another pod's", func(l *v1alpha1.IPLease) { l.Spec.Holder.Pod = "web-1" }, false},
		{"it is of another StatefulSet", func(l *v1alpha1.IPLease) { l.Spec.Holder.OwnerName = "web2" }, false},
		{"it is a bare pod's of that name", func(l *v1alpha1.IPLease) { l.Spec.Holder.OwnerKind, l.Spec.Holder.OwnerName = "", "" }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			l := of("10.1.0.2", v1alpha1.StateBound)
			row.change(l)
			check.Equal(t, succeeds(l, kept), row.want, "got")
		})
	}
}

func TestSucceedsForAPod(t *testing.T) {
	of := func(address string, state v1alpha1.LeaseState, uid string) *v1alpha1.IPLease {
		return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address}, Spec: v1alpha1.IPLeaseSpec{
			Address: address, State: state, Holder: &v1alpha1.Holder{Namespace: "shop", Pod: "web", PodUID: uid, Interface: "eth0", OwnerKind: "ReplicaSet"},
		}}
	}
	kept := of("10.0.0.2", v1alpha1.StateRetained, "u1")
	kept.Spec.Reason = v1alpha1.ReasonSandboxEnded
	check.That(t, succeeds(of("10.1.0.2", v1alpha1.StateBound, "u1"), kept), "the next sandbox of the pod has another address, which does not count")
	check.That(t, !succeeds(of("10.1.0.2", v1alpha1.StateBound, "u2"), kept), "another pod of that name counts")
}

// TestOnlyAPodThatIsThereSucceeds: a lease that an earlier pod has left behind, on
// a node that says nothing, is Bound as well.
func TestOnlyAPodThatIsThereSucceeds(t *testing.T) {
	kept := leaseObject(inState(v1alpha1.StateRetained), ownedByWeb)
	kept.Spec.Holder.PodUID = "uid of a pod that has ended"
	other := leaseObject(ownedByWeb)
	other.Name, other.Spec.Address = "10.7.0.10", "10.7.0.10"
	world := objects(poolObject(), statefulSet(1), kept, other)
	for _, row := range []struct {
		name         string
		cached, live []client.Object
		ends         bool
	}{
		{"the other lease's pod is there", objects(podObject()), objects(podObject()), true},
		{"it is not", nil, nil, false},
		{"it is there in the cache only", objects(podObject()), nil, false},
		{"another one is there", objects(podObject(podReplacedAt(ago(0)))), objects(podObject(podReplacedAt(ago(0)))), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := between(t, objects(world, row.cached), objects(world, row.live))
			b.lookUntilDue()
			check.Equal(t, b.lease() == nil, row.ends, "ended:")
		})
	}
}

// An address that is kept for somebody else ends at once, by rule R11: the next pod of its holder would leave it.
func TestAReservationForAnotherEndsARetention(t *testing.T) {
	kept := leaseObject(inState(v1alpha1.StateRetained), ownedByWeb)
	reservation := func(network, set string) *v1alpha1.ReservedIP {
		return &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.ReservedIPSpec{
			IPs: []string{kept.Spec.Address}, Network: network, For: &v1alpha1.ReservedFor{Namespace: kept.Spec.Holder.Namespace, StatefulSet: set},
		}}
	}
	nobody := reservation("", "")
	nobody.Spec.For = nil
	other := objects(reservation("", "db"))
	for _, row := range []struct {
		name         string
		cached, live []client.Object
		ends         bool
	}{
		{"for another", other, other, true},
		{"for another, in the cache only", other, nil, false},
		{"for another, in another network", objects(reservation("lab", "db")), objects(reservation("lab", "db")), false},
		{"for its own StatefulSet", objects(reservation("", "web")), objects(reservation("", "web")), false},
		{"for nobody", objects(nobody), objects(nobody), false},
	} {
		t.Run(row.name, func(t *testing.T) {
			world := objects(poolObject(), statefulSet(1), kept)
			b := between(t, objects(world, row.cached), objects(world, row.live))
			check.Same(t, woken{Reader: b.reconciler.Reader}.ofReservation(t.Context(), reservation("", "db")),
				[]reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(kept)}}, "it wakes")
			b.lookUntilDue()
			check.Equal(t, b.lease() == nil, row.ends, "ended:")
		})
	}
}

// Both leases of an update are mapped, and a Warm one that is bound had no holder.
func TestAWarmLeaseThatIsBoundMaySucceed(t *testing.T) {
	kept := leaseObject(inState(v1alpha1.StateRetained), ownedByWeb)
	warm, bound := kept.DeepCopy(), kept.DeepCopy()
	warm.Name, bound.Name = "10.7.0.10", "10.7.0.10"
	warm.Spec.State, warm.Spec.Holder = v1alpha1.StateWarm, nil
	bound.Spec.State = v1alpha1.StateBound
	update := event.UpdateEvent{ObjectOld: warm, ObjectNew: bound}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	b := between(t, objects(kept), nil)
	handler.EnqueueRequestsFromMapFunc(woken{Reader: b.reconciler.Reader}.ofLease).Update(t.Context(), update, queue)
	check.Must(t, queue.Len() == 2, "%d leases are woken", queue.Len())
	for _, want := range []string{bound.Name, kept.Name} {
		woken, _ := queue.Get()
		check.Equal(t, woken.Name, want, "woken:")
	}
}

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
				for watched, period := range map[bool]time.Duration{false: unwatchedPeriod, true: watchedPeriod} {
					f.Migration.Watched = watched
					a := Decide(withNode(f))
					check.That(t, a.Kind == Wait && a.Until.Equal(now.Add(period)), "watched %t, the machine is read again by %+v", watched, a)
				}
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
	check.That(t, latestTarget([]podview.Pod{launcher("a", 0), ending}, &holder) == nil, "the target is the source, or a pod that ends")
}
