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
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
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
	w.waitStatus("shared-a", "has the addresses, for it is the older one or the first by name", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 30 && is("Ready", "True/Ready")(s) &&
			says("Overlapping", "True/SharedAddresses", "this pool hands out addresses of other pools: shared-b (10.46.0.20-10.46.0.39)")(s)
	})
	w.waitStatus("shared-b", "hands out the rest", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 10 && is("Ready", "True/Ready")(s) &&
			says("Overlapping", "True/SharedAddresses", "other pools hand out addresses of this pool: shared-a (10.46.0.20-10.46.0.39)")(s)
	})
}

// extended: a typo extends the older pool over the younger pool of another team. The younger pool serves
// as before, whatever is edited later, and the older pool serves the rest.
func extended(w world) {
	older := w.pool("extended-older", "10.54.0.0/24")
	change(w, older, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.54.0.1-10.54.0.9"} })
	w.waitStatus(older.Name, "has nine addresses", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 9 && s.ObservedGeneration == older.Generation })
	younger := w.pool("extended-younger", "10.54.0.0/24")
	change(w, younger, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.54.0.20-10.54.0.29"} })
	whole := func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 10 && len(s.Withheld) == 0 && s.ObservedGeneration == younger.Generation && is("Ready", "True/Ready")(s)
	}
	w.waitStatus(younger.Name, "has ten addresses", whole)

	change(w, older, func(p *v1alpha1.IPPool) { p.Spec.IPs = []string{"10.54.0.1-10.54.0.24"} })
	w.ownsNow(older, 19) // an agent that has seen the edit before the controller
	rest := func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 19 && s.ObservedGeneration == older.Generation && is("Ready", "True/Ready")(s) &&
			says("Overlapping", "True/SharedAddresses", "other pools hand out addresses of this pool: extended-younger (10.54.0.20-10.54.0.24)")(s)
	}
	w.waitStatus(older.Name, "serves the rest", rest)
	w.waitStatus(younger.Name, "says so, and serves as before", func(s v1alpha1.IPPoolStatus) bool {
		return whole(s) && says("Overlapping", "True/SharedAddresses", "extended-older (10.54.0.20-10.54.0.24)")(s)
	})
	w.waitEvent("default", "OverlappingTrue", "extended-younger", "10.54.0.20-10.54.0.24")
	w.ownsNow(older, 19)

	change(w, younger, func(p *v1alpha1.IPPool) { p.Spec.Warm = ptr.To[int64](1) })
	w.ownsNow(younger, 10)
	w.waitStatus(younger.Name, "keeps its addresses after another edit", whole)
	w.waitStatus(older.Name, "still serves the rest", rest)

	w.remove(younger)
	w.waitStatus(older.Name, "gets the addresses of the deleted pool", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 24 && len(s.Withheld) == 0 && is("Overlapping", "False/None")(s)
	})
	w.ownsNow(older, 24)
}

// ownsNow checks the number of addresses that an agent hands out with the pools as they are.
func (w world) ownsNow(pool *v1alpha1.IPPool, want uint64) {
	w.Helper()
	var pools v1alpha1.IPPoolList
	check.OK(w, w.client.List(w.ctx, &pools))
	i := slices.IndexFunc(pools.Items, func(p v1alpha1.IPPool) bool { return p.Name == pool.Name })
	all := check.Value(poolset.Addresses(&pools.Items[i]))(w)
	got := poolset.Own(&pools.Items[i], all, pools.Items)
	check.That(w, got.Len() == want, "an agent hands out %d addresses of pool %s (%v), want %d", got.Len(), pool.Name, got.Entries(), want)
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
