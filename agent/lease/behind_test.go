// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func launcher(uid string) *v1alpha1.Holder {
	return &v1alpha1.Holder{
		Namespace: "shop", Pod: "virt-launcher-db-" + uid, PodUID: uid, Interface: "eth0",
		OwnerGroup: "kubevirt.io", OwnerKind: "VirtualMachineInstance", OwnerName: "db",
	}
}

func TestWhoStandsBehindAHolder(t *testing.T) {
	bound := v1alpha1.IPLeaseSpec{State: v1alpha1.StateBound, NodeName: "n1", Holder: launcher("a")}
	quarantined := v1alpha1.IPLeaseSpec{State: v1alpha1.StateQuarantined, NodeName: "n1", Holder: launcher("a")}
	pod := &v1alpha1.Holder{Namespace: "shop", Pod: "virt-launcher-db-a", PodUID: "b"}
	other := launcher("b")
	other.OwnerName = "log"
	for _, row := range []struct {
		name     string
		who      *v1alpha1.Holder
		isTarget bool
		node     string
		spec     v1alpha1.IPLeaseSpec
		want     bool
	}{
		{"the target of a migration", launcher("b"), true, "n2", bound, true},
		{"the next pod after a restart waits", launcher("b"), false, "n2", bound, false},
		{"the target on the node of the source waits", launcher("b"), true, "n1", bound, false},
		{"the pod of the lease itself", launcher("a"), true, "n2", bound, false},
		{"the source is gone already", launcher("b"), true, "n2", quarantined, false},
		{"another machine", other, true, "n2", bound, false},
		{"a bare pod with the label", pod, true, "n2", bound, false},
	} {
		if got := StandsBehind(row.who, row.isTarget, row.node, &row.spec); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

func TestWhoseTurnItIs(t *testing.T) {
	lease := func(state v1alpha1.LeaseState, node string, holder *v1alpha1.Holder) *v1alpha1.IPLease {
		return &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{State: state, NodeName: node, Holder: holder}}
	}
	other := launcher("c")
	other.OwnerName = "log"
	now := time.Now()
	unverified := func(age time.Duration) *v1alpha1.IPLease {
		l := lease(v1alpha1.StateQuarantined, "n2", launcher("b"))
		l.Spec.Reason, l.Spec.Since = v1alpha1.ReasonUnverified, metav1.NewTime(now.Add(-age))
		return l
	}
	for _, row := range []struct {
		name  string
		lease *v1alpha1.IPLease
		stood time.Duration
		want  Turn
	}{
		{"the source has the address", lease(v1alpha1.StateBound, "n1", launcher("a")), time.Hour, StayBehind},
		{"the source has it for too long", lease(v1alpha1.StateBound, "n1", launcher("a")), BehindLimit + 1, LoseTurn},
		{"the controller has handed it over", lease(v1alpha1.StateQuarantined, "n2", launcher("a")), time.Hour, TakeTurn},
		{"another node verifies the source", lease(v1alpha1.StateQuarantined, "n3", launcher("a")), time.Hour, StayBehind},
		{"a take-over was not proven a moment ago", unverified(time.Second), time.Hour, StayBehind},
		{"a take-over was not proven for some time", unverified(time.Minute), time.Hour, TakeTurn},
		{"the source has ended", lease(v1alpha1.StateRetained, "n1", launcher("a")), time.Hour, TakeTurn},
		{"the take-over was written", lease(v1alpha1.StateBound, "n2", launcher("b")), time.Hour, TakeTurn},
		{"another machine has the address", lease(v1alpha1.StateBound, "n3", other), time.Hour, LoseTurn},
		{"a foreign host has it", lease(v1alpha1.StateQuarantined, "n2", nil), time.Hour, LoseTurn},
		{"the lease is gone", nil, time.Hour, LoseTurn},
	} {
		if got := TurnOf(launcher("b"), "n2", now.Add(-row.stood), now, row.lease); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}
