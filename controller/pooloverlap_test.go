// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/poolset"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// sharedByPools: agents that have seen neither condition allocate from both at once.
func sharedByPools(w world) {
	gateway := func(name, address, ips string) *v1alpha1.IPPool {
		p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{
			Subnet: "10.46.0.0/24", Gateway: ptr.To(address), IPs: []string{ips},
		}}
		w.create(p)
		return p
	}
	pools := []*v1alpha1.IPPool{gateway("shared-a", "10.46.0.1", "10.46.0.10-10.46.0.39"), gateway("shared-b", "10.46.0.2", "10.46.0.20-10.46.0.49")}
	pods := []*corev1.Pod{w.runningPod("shared-a-0", "n1"), w.runningPod("shared-b-0", "n2")}
	given := make([][]string, len(pools))
	w.together(len(pools), func(i int) {
		set, err := poolset.Addresses(pools[i])
		if err != nil {
			w.Error(err)
			return
		}
		given[i] = w.drainFamily(pods[i], ipam.Family{
			Pools: []ipam.Candidate{{Pool: pools[i], Subnet: netip.MustParsePrefix("10.46.0.0/24"), Set: set}},
		})
	})
	both := slices.Concat(given...)
	slices.Sort(both)
	if len(slices.Compact(slices.Clone(both))) != len(both) || len(both) != 40 {
		w.Errorf("%d and %d addresses, want 40 different ones together: %v", len(given[0]), len(given[1]), both)
	}
	for i, p := range pools {
		other := pools[1-i].Name
		w.waitStatus(p.Name, "overlaps "+other, says("Overlapping", "True/SharedAddresses", other))
	}
	w.waitStatus("shared-a", "is ready, for it is the older one or the first by name", is("Ready", "True/Ready"))
	w.waitStatus("shared-b", "is not", says("Ready", "False/Overlapping", "shared-a"))
}

// together runs n functions at the same time.
func (w world) together(n int, run func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() {
			<-start
			run(i)
		})
	}
	close(start)
	group.Wait()
}

func gatewayHandedOut(w world) {
	for name, ips := range map[string]string{"10.47.0.1": "10.47.0.2-10.47.0.20", "10.47.0.2": "10.47.0.30-10.47.0.40"} {
		w.create(&v1alpha1.IPPool{
			ObjectMeta: metav1.ObjectMeta{Name: "gateway-" + name},
			Spec:       v1alpha1.IPPoolSpec{Subnet: "10.47.0.0/24", Gateway: ptr.To(name), IPs: []string{ips}},
		})
	}
	w.waitStatus("gateway-10.47.0.1", "hands the other's gateway out",
		says("Overlapping", "True/GatewayHandedOut", "addresses are the gateways of pools: gateway-10.47.0.2"))
	w.waitStatus("gateway-10.47.0.2", "has its gateway handed out",
		says("Overlapping", "True/GatewayHandedOut", "the gateway is an address of pools: gateway-10.47.0.1"))
}
