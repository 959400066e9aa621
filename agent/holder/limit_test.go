// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// atMost is a pool of which a namespace has at most n addresses.
func atMost(n int64, pool *v1alpha1.IPPool) *v1alpha1.IPPool {
	pool.Spec.MaxPerNamespace = &n
	return pool
}

// leaseFor is a lease of pool v4 whose holder is a pod of a namespace on another node.
func leaseFor(namespace, addr string, change func(*v1alpha1.IPLeaseSpec)) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{
		Address: addr, Pool: fakenode.V4(addr).Name, State: v1alpha1.StateBound, NodeName: "n2",
		Holder: &v1alpha1.Holder{Namespace: namespace, Pod: "p-" + addr, PodUID: "u-" + addr, Interface: "eth0"},
	}}
	l.Name = addr
	if change != nil {
		change(&l.Spec)
	}
	return l
}

func TestANamespaceHasAtMostItsAddresses(t *testing.T) {
	quarantined := func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason = v1alpha1.StateQuarantined, v1alpha1.ReasonPodGone
		s.Previous = &v1alpha1.PreviousHolder{Node: "n2", Token: 7}
	}
	for _, row := range []struct {
		name  string
		there []*v1alpha1.IPLease
		ok    bool
	}{
		{"below the limit", []*v1alpha1.IPLease{leaseFor("shop", "10.0.0.3", nil)}, true},
		{"another namespace does not count", []*v1alpha1.IPLease{leaseFor("bank", "10.0.0.3", nil), leaseFor("bank", "10.0.0.4", nil)}, true},
		{"at the limit", []*v1alpha1.IPLease{leaseFor("shop", "10.0.0.3", nil), leaseFor("shop", "10.0.0.4", nil)}, false},
		{"Retained and Quarantined ones count", []*v1alpha1.IPLease{leaseFor("shop", "10.0.0.3", fakenode.Retained), leaseFor("shop", "10.0.0.4", quarantined)}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, atMost(2, fakenode.V4("10.0.0.2-10.0.0.9")))
			for _, l := range row.there {
				r.API.Put(l)
			}
			web := r.Pod("web-0", "u")
			if row.ok {
				r.MustAdd(web)
				return
			}
			check.Says(t, r.Refused(agentapi.CodeNoPool, web), "namespace shop has its 2 addresses of the pool (maxPerNamespace)")
			n := len(r.API.Leases())
			check.That(t, n == len(row.there), "%d leases", n)
		})
	}
}

func TestAnotherPoolServesANamespaceThatHasItsAddresses(t *testing.T) {
	full := atMost(1, fakenode.V4("10.0.0.2-10.0.0.9"))
	other := fakenode.Pool("other", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2-10.1.0.9")
	r := fakenode.New(t, full, other)
	r.API.Put(leaseFor("shop", "10.0.0.3", nil))
	web := r.Pod("web-0", "u")
	web.Network.DefaultIPv4IPPool = []string{full.Name, other.Name}
	got := r.MustAdd(web)
	check.That(t, strings.HasPrefix(got[0], "10.1.0."), "got %v", got)
}

// Two ADDs count before either has leased an address. The one with the newer token gives way.
func TestOfTwoADDsThatRaceForTheLastAddressTheNewerGivesWay(t *testing.T) {
	for _, row := range []struct {
		name, version string
		ok            bool
	}{{"the other one is older", "1", false}, {"the other one is newer", "9999", true}} {
		t.Run(row.name, func(t *testing.T) {
			r := fakenode.New(t, atMost(1, fakenode.V4("10.0.0.2-10.0.0.9")))
			r.API.Before = func(verb, _ string) error {
				if verb == "create" {
					r.API.Before = nil
					l := leaseFor("shop", "10.0.0.9", nil)
					l.ResourceVersion = row.version
					r.API.Objects[fakenode.KeyFor(l, client.ObjectKeyFromObject(l))] = l
				}
				return nil
			}
			web := r.Pod("web-0", "u")
			if row.ok {
				r.MustAdd(web)
				return
			}
			r.Refused(agentapi.CodeNoPool, web)
			r.Want("10.0.0.9 Bound")
		})
	}
}

func TestAKeptAddressStaysWithAPodOfAFullNamespace(t *testing.T) {
	r := fakenode.New(t, atMost(1, fakenode.V4("10.0.0.2-10.0.0.9")))
	web := r.Pod("web-0", "u", fakenode.OfStatefulSet)
	first := r.MustAdd(web)
	check.OK(t, r.Del(t.Context(), agentapi.DelRequest{Attachment: web.Attachment}))
	next := r.Pod("web-0", "u2", fakenode.OfStatefulSet)
	next.ContainerID = "next"
	got := r.MustAdd(next)
	check.That(t, got[0] == first[0], "got %v, want %v", got, first)
}
