// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// indexer lets a fake client have the indexes.
type indexer struct{ *fake.ClientBuilder }

func (f indexer) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
	f.WithIndex(o, field, keys)
	return nil
}

func TestTheOtherLeasesOfABucketAreNotFound(t *testing.T) {
	// Two pods whose keys share a bucket.
	const first = "web-0"
	second := ""
	for i := 1; second == ""; i++ {
		if name := fmt.Sprintf("web-%d", i); bucket(PodKey("shop", name)) == bucket(PodKey("shop", first)) {
			second = name
		}
	}
	machine := &v1alpha1.Holder{Namespace: "shop", Pod: "virt-launcher-a", OwnerGroup: "kubevirt.io", OwnerKind: "VirtualMachineInstance", OwnerName: "a"}
	holders := map[string]*v1alpha1.Holder{
		"10.0.0.1": {Namespace: "shop", Pod: first}, "10.0.0.2": {Namespace: "shop", Pod: second},
		"10.0.0.3": {Namespace: "shop", Pod: first}, "10.0.0.4": machine, "10.0.0.5": nil,
	}
	builder := fake.NewClientBuilder().WithScheme(check.Value(Scheme())(t))
	check.OK(t, AddIndexes(t.Context(), indexer{builder}))
	for name, holder := range holders {
		builder.WithObjects(&v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPLeaseSpec{Holder: holder}})
	}
	reader := builder.Build()
	for key, want := range map[string][]string{
		PodKey("shop", first): {"10.0.0.1", "10.0.0.3"}, PodKey("shop", second): {"10.0.0.2"}, PodKey("shop", "none"): nil,
		PodKey("shop", machine.Pod): {"10.0.0.4"}, IdentityKey(machine): {"10.0.0.4"},
	} {
		var got []string
		for _, l := range check.Value(LeasesOf(t.Context(), reader, key))(t) {
			got = append(got, l.Name)
		}
		slices.Sort(got)
		check.List(t, got, want, "the leases of %s are", key)
	}
}

// What retention reads of a StatefulSet has to be there in the cache, too.
func TestAStatefulSetKeepsWhatRetentionReads(t *testing.T) {
	for _, annotations := range []map[string]string{
		nil,
		{"ipam.fenceline.io/static-ip": "true", "other": "x"},
		{"ipam.spidernet.io/ip-retention": "48h"},
		{"ipam.fenceline.io/ip-retention": "nonsense"},
	} {
		set := &appsv1.StatefulSet{}
		set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		kept := slimStatefulSet(set).Spec.Template.Annotations
		want, wantErr := v1alpha1.ParseRetention(annotations)
		got, gotErr := v1alpha1.ParseRetention(kept)
		check.That(t, equality.Semantic.DeepEqual(got, want) && (gotErr == nil) == (wantErr == nil),
			"%v: the cache has %v: %+v (%v), want %+v (%v)", annotations, kept, got, gotErr, want, wantErr)
		_, ok := kept["other"]
		check.That(t, !ok, "it keeps what nobody reads")
	}
}

// A lease is written back as the cache has it.
func TestALeaseKeepsItsSpec(t *testing.T) {
	now := metav1.NewTime(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	lease := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{
			Name: "10.6.0.10", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		Spec: v1alpha1.IPLeaseSpec{
			Address: "10.6.0.10", Pool: "blue", Parent: "eth1", State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonPodGone,
			Message: "m", Since: now, NodeName: "n1", Session: "s",
			Holder:    &v1alpha1.Holder{Namespace: "default", Pod: "web-0", PodUID: "p", OwnerKind: "StatefulSet", OwnerName: "web"},
			Previous:  &v1alpha1.PreviousHolder{Node: "n2", Since: now},
			Retention: &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever},
		},
	}
	want := lease.DeepCopy()
	want.ManagedFields = nil
	slim := slimLease(lease)
	check.That(t, equality.Semantic.DeepEqual(slim, want), "got %+v, want %+v", slim, want)
}
