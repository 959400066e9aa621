// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestWhatAVerificationLeadsTo(t *testing.T) {
	because := func(r v1alpha1.LeaseReason) func(*spec) { return func(s *spec) { s.Reason = r } }
	kept := func(s *spec) { s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever} }
	unkept := func(s *spec) { s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainNone} }
	onItsNode := func(s *spec) { s.NodeName = "n2" }
	held := with(quarantined, noPrevious, func(s *spec) {
		s.State, s.Reason, s.Since, s.Holder.ContainerID = v1alpha1.StateRetained, "", metav1.NewTime(now), ""
	})
	answered := func(s *spec) {
		s.Reason, s.Since, s.Conflict = v1alpha1.ReasonConflict, metav1.NewTime(now), conflict
		s.Message = "0a:00:00:00:00:09 uses the address too (probe)"
	}
	inConflict := with(quarantined, answered, func(s *spec) {
		s.Since = metav1.NewTime(before)
		s.Conflict = &v1alpha1.Conflict{MAC: "0a:00:00:00:00:09", Source: "probe", FirstSeen: metav1.NewTime(before), LastSeen: metav1.NewTime(before), Count: 1}
	})

	for _, c := range []struct {
		rule     string
		from     spec
		finding  Finding
		evidence Evidence
		want     Settlement
		spec     spec
	}{
		{"safe frees the address", with(quarantined, plain), FindingSafe, Evidence{}, Free, with(quarantined, plain)},
		{"safe frees what has no holder", with(quarantined, nobody, kept), FindingSafe, Evidence{}, Free, with(quarantined, nobody, kept)},
		{"safe retains a StatefulSet pod's address", quarantined, FindingSafe, Evidence{}, Hold, held},
		{"safe frees what a StatefulSet's pod does not keep", with(quarantined, unkept), FindingSafe, Evidence{}, Free, with(quarantined, unkept)},
		{"safe retains what its pod asked to keep", with(quarantined, plain, kept), FindingSafe, Evidence{}, Hold, with(held, plain, kept)},
		{"safe keeps the address of a pod that may get another sandbox after the boot", with(quarantined, plain, because(v1alpha1.ReasonNodeRestarted)),
			FindingSafe, Evidence{}, Hold, with(held, sandboxEnded, onItsNode)},
		{"safe keeps the address of a pod whose take-over was not confirmed", with(quarantined, plain, because(v1alpha1.ReasonUnverified)),
			FindingSafe, Evidence{}, Hold, with(held, sandboxEnded, onItsNode)},
		{"safe frees the address of a holder without UID", with(quarantined, plain, because(v1alpha1.ReasonNodeRestarted), func(s *spec) { s.Holder.PodUID = "" }),
			FindingSafe, Evidence{}, Free, with(quarantined, plain, because(v1alpha1.ReasonNodeRestarted), func(s *spec) { s.Holder.PodUID = "" })},
		{"an answer is a conflict, and the last holder stays on record", quarantined, FindingAnswered, stranger, Keep, with(quarantined, answered)},
		{"a second answer counts; the conflict began with the first", inConflict, FindingAnswered, stranger, Keep, with(inConflict, func(s *spec) {
			s.Conflict.Count, s.Conflict.LastSeen = 2, metav1.NewTime(now)
		})},
		{"unknown changes nothing but the message (R2)", quarantined, FindingUnknown, Evidence{Message: "deaf"}, Keep,
			with(quarantined, func(s *spec) { s.Message = "deaf" })},
		{"the zero finding is unknown", quarantined, 0, Evidence{}, Keep, quarantined},
	} {
		t.Run(c.rule, func(t *testing.T) {
			what, got, err := Settle(*c.from.DeepCopy(), c.finding, c.evidence, now)
			check.Must(t, err == nil && what == c.want, "got %d, %v, want %d", what, err, c.want)
			check.Same(t, got, c.spec, "the value")
		})
	}
	for _, s := range []spec{mine, retained, with(mine, warm)} {
		_, _, err := Settle(s, FindingSafe, Evidence{}, now)
		check.That(t, errors.Is(err, ErrState), "a %s lease was settled: %v", s.State, err)
	}
}

func TestComesFree(t *testing.T) {
	deployment := func(s *spec) { s.Holder.OwnerKind = "ReplicaSet" }
	for rule, test := range map[string]struct {
		of   spec
		want bool
	}{
		"a Bound lease lasts as long as its pod":                    {with(mine, deployment), false},
		"a Retained lease lasts by policy":                          {with(mine, deployment, state(v1alpha1.StateRetained)), false},
		"a Warm lease is given up":                                  {with(mine, noHolder, state(v1alpha1.StateWarm)), true},
		"a Quarantined lease is verified":                           {with(quarantined, deployment), true},
		"a Quarantined lease of a StatefulSet pod becomes Retained": {quarantined, false},
		"a Quarantined lease with a retention becomes Retained": {with(quarantined, deployment, func(s *spec) {
			s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
		}), false},
		"a pod may get the address back after the boot of its node": {with(quarantined, deployment, func(s *spec) {
			s.Reason = v1alpha1.ReasonNodeRestarted
		}), false},
		"another speaker may stay": {with(quarantined, noHolder, func(s *spec) { s.Reason = v1alpha1.ReasonConflict }), false},
	} {
		t.Run(rule, func(t *testing.T) { check.Equal(t, comesFree(&test.of), test.want, "got") })
	}
}

func state(to v1alpha1.LeaseState) func(*spec) { return func(s *spec) { s.State = to } }

func noHolder(s *spec) { s.Holder = nil }

func TestAFenceEndsByTheStoreThatGaveItsToken(t *testing.T) {
	for rule, c := range map[string]struct {
		claimed, live, known uint64
		want                 Renewal
	}{
		"the store is past the token":                       {100, 200, 200, Outrank},
		"the store has just given the token":                {200, 200, 150, Outrank},
		"the store has never given the token":               {300, 200, 200, Disprove},
		"the store has never given it, and went back since": {500, 200, 400, Disprove},
		"the store gave the token, and went back since":     {300, 200, 400, GiveWay},
		"the store gave the token last, and went back":      {400, 200, 400, GiveWay},
		"nothing was claimed":                               {0, 200, 200, Outrank},
	} {
		check.Equal(t, RenewalOf(c.claimed, c.live, c.known), c.want, "%s: got", rule)
	}
}

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
		check.Equal(t, IsStandby(row.who, row.isTarget, row.node, &row.spec), row.want, "%s:", row.name)
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
		check.Equal(t, TurnOf(launcher("b"), "n2", now.Add(-row.stood), now, row.lease), row.want, "%s:", row.name)
	}
}
