// SPDX-License-Identifier: Apache-2.0

package reclaim

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// clusterPolicy is what the chart sets where nobody changed a value.
func clusterPolicy() Policy {
	return Policy{Enabled: true, Terminating: true, ExtraGrace: 5 * time.Second, NodeDown: NodeDown{Take: true}}
}

func TestAPoolOverridesTheCluster(t *testing.T) {
	strict := Policy{Enabled: true, ExtraGrace: time.Minute}
	for _, row := range []struct {
		name    string
		cluster Policy
		pool    *v1alpha1.IPPool
		want    Policy
	}{
		{"a pool that is gone has the cluster's policy", strict, nil, strict},
		{"a pool without settings has the cluster's policy", strict, poolThat(&v1alpha1.Reclaim{}, nil), strict},
		{"terminating", strict, poolThat(&v1alpha1.Reclaim{Terminating: ptr.To(true)}, nil), Policy{Enabled: true, Terminating: true, ExtraGrace: time.Minute}},
		{"terminating, if the cluster has the opposite", clusterPolicy(), poolThat(&v1alpha1.Reclaim{Terminating: ptr.To(false)}, nil),
			Policy{Enabled: true, ExtraGrace: 5 * s, NodeDown: NodeDown{Take: true}}},
		{"extraGrace of 0", strict, poolThat(&v1alpha1.Reclaim{ExtraGrace: &v1alpha1.Duration{}}, nil), Policy{Enabled: true}},
		{"nodeDown", strict, poolThat(&v1alpha1.Reclaim{NodeDown: v1alpha1.NodeDownAfterTerminating}, nil),
			Policy{Enabled: true, ExtraGrace: time.Minute, NodeDown: NodeDown{Take: true}}},
		{"nodeDown, if the cluster has the opposite", clusterPolicy(), poolThat(&v1alpha1.Reclaim{NodeDown: v1alpha1.NodeDownNever}, nil),
			Policy{Enabled: true, Terminating: true, ExtraGrace: 5 * s}},
		{"a nodeDown that cannot be read takes nothing", clusterPolicy(), poolThat(&v1alpha1.Reclaim{NodeDown: "After a while"}, nil),
			Policy{Enabled: true, Terminating: true, ExtraGrace: 5 * s}},
		{"retention.max", strict, poolThat(nil, &v1alpha1.PoolRetention{Max: &v1alpha1.Duration{Duration: time.Hour}}),
			Policy{Enabled: true, ExtraGrace: time.Minute, RetentionLimit: time.Hour}},
		{"no pool switches reclaim on", Policy{}, poolThat(&v1alpha1.Reclaim{Terminating: ptr.To(true)}, nil), Policy{Terminating: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			check.Equal(t, PolicyOf(row.pool, row.cluster), row.want, "got")
		})
	}
}

func poolThat(r *v1alpha1.Reclaim, keeps *v1alpha1.PoolRetention) *v1alpha1.IPPool {
	return &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Reclaim: r, Retention: keeps}}
}

func TestFormsOfNodeDown(t *testing.T) {
	for text, want := range map[v1alpha1.NodeDownPolicy]NodeDown{
		"Never":            {},
		"AfterTerminating": {Take: true},
		"After 2m":         {Take: true, DeletePods: true, After: 2 * time.Minute},
		"After 1h30m":      {Take: true, DeletePods: true, After: 90 * time.Minute},
		"After 0s":         {Take: true, DeletePods: true},
	} {
		got, err := ParseNodeDown(text)
		check.That(t, err == nil && got == want, "%q: %+v (%v), want %+v", text, got, err, want)
		if again, err := ParseNodeDown(v1alpha1.NodeDownPolicy(got.String())); err != nil || again != want {
			t.Errorf("%q is written %q, which reads %+v (%v)", text, got, again, err)
		}
	}
	for _, text := range []v1alpha1.NodeDownPolicy{"", "never", "After", "After ", "After 5", "After -1s", "2m", "After2m"} {
		got, err := ParseNodeDown(text)
		check.That(t, err != nil && !got.Take, "%q: %+v (%v)", text, got, err)
	}
}
