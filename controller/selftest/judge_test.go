// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestTheJudgeSaysWhichGuardWasNotTested(t *testing.T) {
	scheme := runtime.NewScheme()
	check.OK(t, clientgoscheme.AddToScheme(scheme))
	check.OK(t, v1alpha1.AddToScheme(scheme))
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "f", Name: "p", UID: "u", Labels: map[string]string{"app.kubernetes.io/name": "fenceline", "app.kubernetes.io/component": "test"},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
	}
	objects := []client.Object{&pod}
	for address, c := range map[string]struct {
		guarded bool
		mode    v1alpha1.SourceGuardMode
	}{
		"10.0.0.1": {true, v1alpha1.SourceGuardEnforce}, "10.0.0.2": {false, v1alpha1.SourceGuardEnforce}, "10.0.0.3": {true, v1alpha1.SourceGuardObserve},
	} {
		objects = append(objects,
			&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "pool-" + address}, Spec: v1alpha1.IPPoolSpec{SourceGuard: c.mode}},
			&v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address}, Spec: v1alpha1.IPLeaseSpec{
				Address: address, Pool: "pool-" + address, State: v1alpha1.StateBound,
				Holder: &v1alpha1.Holder{Namespace: "f", Pod: "p", PodUID: "u", Interface: "eth0", Guarded: c.guarded},
			}})
	}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&v1alpha1.IPLease{}, "spec.holder.namespace", func(o client.Object) []string { return []string{o.(*v1alpha1.IPLease).Spec.Holder.Namespace} }).Build()
	var out strings.Builder
	check.OK(t, Judge{Client: api, Namespace: "f", Out: &out}.tell(t.Context(), []corev1.Pod{pod}))
	check.Says(t, out.String(),
		"pod p on node n1 has 10.0.0.1 of pool pool-10.0.0.1; guard drops foreign frames; other pod and DNS answer\n",
		"10.0.0.2 of pool pool-10.0.0.2; guard not tested: interface eth0 has none; other pod and DNS answer\n",
		"10.0.0.3 of pool pool-10.0.0.3; guard not tested: sourceGuard of the pool is Observe; other pod and DNS answer\n")
}
