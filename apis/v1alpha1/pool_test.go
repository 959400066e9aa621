// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestPoolsInOneSubnet(t *testing.T) {
	pool := v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24", Network: "lab", Vlan: ptr.To(int64(7))}}
	for _, row := range []struct {
		name   string
		change func(*v1alpha1.IPPoolSpec)
		want   bool
	}{
		{"the same", func(*v1alpha1.IPPoolSpec) {}, true},
		{"other addresses of the subnet", func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.0.0.9"} }, true},
		{"a subnet that overlaps", func(s *v1alpha1.IPPoolSpec) { s.Subnet = "10.0.0.0/16" }, false},
		{"another network", func(s *v1alpha1.IPPoolSpec) { s.Network = "" }, false},
		{"no VLAN", func(s *v1alpha1.IPPoolSpec) { s.Vlan = nil }, false},
		{"the other family", func(s *v1alpha1.IPPoolSpec) { s.Subnet = "fd00::/64" }, false},
		{"no subnet", func(s *v1alpha1.IPPoolSpec) { s.Subnet = "" }, false},
	} {
		other := pool.DeepCopy()
		row.change(&other.Spec)
		check.Equal(t, pool.InSubnetOf(other), row.want, "%s:", row.name)
	}
}
