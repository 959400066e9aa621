// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

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
