// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestAPodSpeaksForTheVirtualAddressesThatSelectItInItsOwnSubnet(t *testing.T) {
	const addr = "10.0.0.5"
	pools := []*IPPool{{Spec: IPPoolSpec{Subnet: "10.0.0.0/24"}}}
	for name, tc := range map[string]struct {
		edit func(*ReservedIP)
		want bool
	}{
		"it has all labels":                       {func(*ReservedIP) {}, true},
		"it lacks a label":                        {func(r *ReservedIP) { r.Spec.Virtual.MatchLabels["tier"] = "front" }, false},
		"a label has another value":               {func(r *ReservedIP) { r.Spec.Virtual.MatchLabels["app"] = "b" }, false},
		"no label is named":                       {func(r *ReservedIP) { r.Spec.Virtual.MatchLabels = nil }, false},
		"another namespace":                       {func(r *ReservedIP) { r.Spec.Virtual.Namespace = "lab" }, false},
		"another network":                         {func(r *ReservedIP) { r.Spec.Network = "lab" }, false},
		"another subnet":                          {func(r *ReservedIP) { r.Spec.IPs[0] = "10.0.1.5" }, false},
		"a reservation for nobody":                {func(r *ReservedIP) { r.Spec.Virtual = nil }, false},
		"a pod still holds an address":            {func(r *ReservedIP) { r.Status.InUse = 1 }, false},
		"the controller has not looked at it yet": {func(r *ReservedIP) { r.Status.ObservedGeneration = 0 }, false},
		"another reservation has the address too": {func(r *ReservedIP) {
			r.Status.Conditions = []metav1.Condition{{Type: ConditionContested, Status: metav1.ConditionTrue}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := ReservedIP{Spec: ReservedIPSpec{IPs: []string{addr}, Virtual: &ReservedVirtual{Namespace: "shop", MatchLabels: map[string]string{"app": "a"}}}, Status: ReservedIPStatus{ObservedGeneration: 1}}
			tc.edit(&r)
			got := VirtualsOf([]ReservedIP{r}, "shop", map[string]string{"app": "a", "more": "b"}, pools)
			if (len(got) == 1) != tc.want {
				t.Errorf("it speaks for %v", got)
			}
		})
	}
}

func TestTheMACOfVRRP(t *testing.T) {
	v := &ReservedVirtual{VRRPID: ptr.To[int64](51)}
	for addr, want := range map[string]string{"10.0.0.5": "00:00:5e:00:01:33", "fd00::5": "00:00:5e:00:02:33"} {
		if got := v.MAC(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s has %s, want %s", addr, got, want)
		}
	}
}
