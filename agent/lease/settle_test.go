// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
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
			if err != nil || what != c.want {
				t.Fatalf("got %d, %v, want %d", what, err, c.want)
			}
			if diff := cmp.Diff(c.spec, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, s := range []spec{mine, retained, with(mine, warm)} {
		if _, _, err := Settle(s, FindingSafe, Evidence{}, now); !errors.Is(err, ErrState) {
			t.Errorf("a %s lease was settled: %v", s.State, err)
		}
	}
}
