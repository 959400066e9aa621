// SPDX-License-Identifier: Apache-2.0

package cache

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// fields lets a fake client have the indexes.
type fields struct{ *fake.ClientBuilder }

func (f fields) IndexField(_ context.Context, o client.Object, field string, keys client.IndexerFunc) error {
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
	scheme := check.Value(Scheme())(t)
	builder := fake.NewClientBuilder().WithScheme(scheme)
	check.OK(t, AddIndexes(t.Context(), fields{builder}))
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
