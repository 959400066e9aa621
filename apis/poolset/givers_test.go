// SPDX-License-Identifier: Apache-2.0

package poolset

import (
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestGivers(t *testing.T) {
	made := func(name string, edits ...func(*v1alpha1.IPPool)) v1alpha1.IPPool {
		p := v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
			Subnet: "10.6.0.0/24", IPs: []string{"10.6.0.10-10.6.0.20"},
		}}
		for _, edit := range edits {
			edit(&p)
		}
		return p
	}
	spec := func(edit func(*v1alpha1.IPPoolSpec)) func(*v1alpha1.IPPool) {
		return func(p *v1alpha1.IPPool) { edit(&p.Spec) }
	}
	deleting := func(p *v1alpha1.IPPool) { p.DeletionTimestamp = &metav1.Time{} }
	for _, row := range []struct {
		name     string
		pools    []v1alpha1.IPPool
		reserved []string
		want     []string
	}{
		{"a pool that has the address", []v1alpha1.IPPool{made("a")}, nil, []string{"a"}},
		{"a disabled pool may be enabled again", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Disable = ptr.To(true) }))}, nil, []string{"a"}},
		{"a pool that is being deleted", []v1alpha1.IPPool{made("a", deleting)}, nil, nil},
		{"no pool at all", nil, nil, nil},
		{"ips without the address", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.6.0.10"} }))}, nil, nil},
		{"an excluded address", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.ExcludeIPs = []string{"10.6.0.14/31"} }))}, nil, nil},
		{"a gateway", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Gateway = ptr.To("10.6.0.15") }))}, nil, nil},
		{"a reserved address", []v1alpha1.IPPool{made("a")}, []string{"10.6.0.15"}, nil},
		{"a reservation of another address", []v1alpha1.IPPool{made("a")}, []string{"10.6.0.16"}, []string{"a"}},
		{"one of two pools is being deleted", []v1alpha1.IPPool{made("a", deleting), made("b")}, nil, []string{"b"}},
		{"a pool of another network", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Network = "lab" }))}, nil, nil},
		{"a pool of another subnet", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Subnet, s.IPs = "10.7.0.0/24", nil }))}, nil, nil},
		{"an unreadable list may have the address", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.6.0.9-10.6.0.2"} }))}, nil, []string{"a"}},
		{"an unreadable subnet may have the address", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Subnet = "?" }))}, nil, []string{"a"}},
		{"an unreadable list of another subnet", []v1alpha1.IPPool{made("a", spec(func(s *v1alpha1.IPPoolSpec) { s.Subnet, s.IPs = "10.7.0.0/24", []string{"10.7.0.9-10.7.0.2"} }))}, nil, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			reserved, err := Parse(row.reserved)
			check.OK(t, err)
			if got := Givers("", netip.MustParseAddr("10.6.0.15"), row.pools, reserved); !slices.Equal(got, row.want) {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
}
