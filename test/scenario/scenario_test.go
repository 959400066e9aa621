// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/capture"
)

func TestAScenarioEndsWithItsFirstFailedStepAndIsUndoneBackwards(t *testing.T) {
	var done []string
	broken, stuck := errors.New("broken"), errors.New("stuck")
	s := Scenario{Name: "example", play: func(_ context.Context, a *act) {
		a.after("first", func(context.Context) { done = append(done, "undo first") })
		a.after("second", func(context.Context) { check(stuck) })
		done = append(done, value("step", nil))
		check(broken)
		done = append(done, "a step after the failure")
	}}
	err := s.Play(t.Context(), &Stage{}, &Story{}, func(context.Context) { done = append(done, "dump") })
	if !errors.Is(err, broken) || !errors.Is(err, stuck) {
		t.Errorf("the scenario ended with %v", err)
	}
	if want := []string{"step", "dump", "undo first"}; !slices.Equal(done, want) {
		t.Errorf("%q were done, not %q", done, want)
	}
}

func TestLeasesEqualLivingHolders(t *testing.T) {
	pod := func(uid, addr string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web-" + uid, UID: types.UID(uid)},
			Status:     corev1.PodStatus{PodIP: addr, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	lease := func(addr string, state v1alpha1.LeaseState, uid string) v1alpha1.IPLease {
		return v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: addr, State: state, Holder: &v1alpha1.Holder{PodUID: uid}}}
	}
	a, b := pod("a", "10.78.3.10", corev1.ConditionTrue), pod("b", "10.78.3.11", corev1.ConditionTrue)
	leaseA, leaseB := lease("10.78.3.10", v1alpha1.StateBound, "a"), lease("10.78.3.11", v1alpha1.StateBound, "b")
	for _, tc := range []struct {
		name    string
		leases  []v1alpha1.IPLease
		pods    []corev1.Pod
		problem string
	}{
		{"each pod has its lease", []v1alpha1.IPLease{leaseB, leaseA}, []corev1.Pod{a, b}, ""},
		{"a pod has no lease", []v1alpha1.IPLease{leaseA}, []corev1.Pod{a, b}, "pod b has"},
		{"a lease has no pod", []v1alpha1.IPLease{leaseA, leaseB}, []corev1.Pod{a}, "no living pod"},
		{"a pod has two leases", []v1alpha1.IPLease{leaseA, lease("10.78.3.11", v1alpha1.StateBound, "a")}, []corev1.Pod{a}, "no living pod"},
		{"a lease is in quarantine", []v1alpha1.IPLease{lease("10.78.3.10", v1alpha1.StateQuarantined, "a")}, []corev1.Pod{a}, "no living pod"},
		{"a lease has no holder", []v1alpha1.IPLease{{Spec: v1alpha1.IPLeaseSpec{Address: "10.78.3.10", State: v1alpha1.StateBound}}}, []corev1.Pod{a}, "no living pod"},
		{"a pod does not run", []v1alpha1.IPLease{leaseA}, []corev1.Pod{pod("a", "10.78.3.10", corev1.ConditionFalse)}, "does not run"},
	} {
		t.Run(tc.name, func(t *testing.T) { expectProblem(t, equal(tc.leases, tc.pods), tc.problem) })
	}
}

func TestSpeakersForAnAddressTakeTurns(t *testing.T) {
	among := (&act{scenario: Scenario{number: int(disputed.As4()[2])}}).addresses()
	other := speech(2, newMAC)
	other.Speaks = append(other.Speaks[:0:0], among.Addr().Next())
	abroad := other
	abroad.Speaks = append(abroad.Speaks[:0:0], underlay.Addr().Next())
	for _, tc := range []struct {
		name    string
		frames  []capture.Frame
		problem string
	}{
		{"one speaker speaks as often as it likes", []capture.Frame{speech(1, zombieMAC), speech(2, zombieMAC)}, ""},
		{"a second one follows the first", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(3, newMAC)}, ""},
		{"a third one follows the second", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(3, parentMAC)}, ""},
		{"the first is heard again after the second has begun", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(2.5, zombieMAC)}, "500µs after"},
		{"the first comes back after the second has ended", []capture.Frame{speech(1, zombieMAC), speech(2, newMAC), speech(900, zombieMAC)}, "two speakers"},
		{"speakers for other addresses do not count", []capture.Frame{speech(1, zombieMAC), other, speech(3, zombieMAC)}, ""},
		{"claims speak for nobody", []capture.Frame{speech(1, zombieMAC), claimFrame(2, "ul-n3", "claim"), speech(3, zombieMAC)}, ""},
		{"addresses of others are not judged", []capture.Frame{abroad, func() capture.Frame { f := abroad; f.Source = zombieMAC; return f }(), abroad}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) { expectProblem(t, takeTurns(tc.frames, among), tc.problem) })
	}
}
