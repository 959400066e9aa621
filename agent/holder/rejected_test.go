// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/attachment"
	"github.com/fenceline/fenceline/agent/pod"
	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// rejections are the facts that speak against 10.0.0.2, or its pool v4, with the code of an ADD that
// has no other address.
var rejections = []struct {
	name string
	pool func() *v1alpha1.IPPool
	fact func(*fakenode.Node)
	// next is the address that the pod gets instead.
	next string
	code uint
	says string
}{
	{"the gateway is silent", func() *v1alpha1.IPPool { return checked(fakenode.V4("10.0.0.2-10.0.0.9")) }, func(r *fakenode.Node) {
		r.Wire.Silent = map[netip.Addr]bool{netip.MustParseAddr(gateway): true}
	}, "10.1.0.2", agentapi.CodeTryAgainLater, "gateway 10.0.0.254 of pool v4 does not answer"},
	{"the race for maxPerNamespace is lost", func() *v1alpha1.IPPool { return atMost(1, fakenode.V4("10.0.0.2-10.0.0.9")) }, func(r *fakenode.Node) {
		r.API.Before = func(verb, name string) error {
			if verb == "create" && name == "10.0.0.2" {
				l := leaseFor("shop", "10.0.0.7", nil)
				r.API.Store(fakenode.KeyFor(l, client.ObjectKey{Name: l.Name}), l)
			}
			return nil
		}
	}, "10.1.0.2", agentapi.CodeNoPool, "maxPerNamespace"},
	{"a route diverts packets", func() *v1alpha1.IPPool {
		pool := fakenode.V4("10.0.0.2-10.0.0.9")
		pool.Spec.Routes = []v1alpha1.Route{{Dst: "10.96.0.0/16", Gw: "10.0.0.1"}}
		return pool
	}, func(r *fakenode.Node) { r.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")} },
		"10.1.0.2", agentapi.CodeInvalidNetworkConfig, "spec.routeCheck of pool v4"},
	{"the MAC of the pool is impossible", func() *v1alpha1.IPPool { return fromIP(fakenode.V4("10.0.0.2-10.0.0.9")) }, func(r *fakenode.Node) {
		r.Kind = pod.IPVLAN
	}, "10.1.0.2", agentapi.CodeNoPool, "spec.macPolicy"},
	{"it is fenced after its claim", func() *v1alpha1.IPPool { return fakenode.V4("10.0.0.2-10.0.0.9") }, func(r *fakenode.Node) {
		r.Wire.OnClaim = func(c segment.Claim) {
			if c.Addr == fakenode.Two {
				r.Kernel.Claimed(fakenode.Key("10.0.0.2"), c.Token+1)
			}
		}
	}, "10.0.0.3", agentapi.CodeTryAgainLater, "newer claim"},
}

// both names two pools, in their order.
func both(r *fakenode.Node, change ...func(*corev1.Pod)) agentapi.AddRequest {
	web := r.Pod("web-0", "u1", change...)
	web.Network.DefaultIPv4IPPool = []string{"v4", "other"}
	return web
}

func TestAnAddressThatIsRejectedLeadsToTheNext(t *testing.T) {
	for _, why := range rejections {
		t.Run(why.name, func(t *testing.T) {
			r := fakenode.New(t, why.pool(), other())
			why.fact(r)
			web := both(r)
			r.Gets(web, why.next)
			e, _ := r.Attachments.Get(web.ContainerID, web.Interface)
			check.That(t, len(e.Addresses) == 1 && e.Phase == attachment.Bound, "journal %+v", e)
			_, there, _ := r.Kernel.Lease(fakenode.Key("10.0.0.2"))
			check.That(t, !there && r.Speaks(web, why.next), "10.0.0.2 in the kernel %v, or the pod is mute", there)
			for _, name := range r.Names() {
				check.That(t, name != "10.0.0.2 Bound", "the lease stays")
			}
			r.HoldsWhatTheJournalSays(web)
		})
	}
}

func TestWithoutAnotherAddressARejectionEndsTheADD(t *testing.T) {
	for _, why := range rejections {
		t.Run(why.name, func(t *testing.T) {
			pool := why.pool()
			pool.Spec.IPs = []string{"10.0.0.2"}
			r := fakenode.New(t, pool)
			why.fact(r)
			check.Says(t, r.Refused(why.code, r.Pod("web", "u1")), why.says)
			check.None(t, r.Attachments.All(), "journal")
		})
	}
}

// Both pools are rejected: the error has both reasons, and the code of the first.
func TestAnErrorNamesEachRejectedPool(t *testing.T) {
	second := other()
	second.Spec.Gateway, second.Spec.GatewayCheck = new("10.1.0.254"), new(true)
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")), second)
	r.Kind = pod.IPVLAN
	r.Wire.Silent = map[netip.Addr]bool{netip.MustParseAddr("10.1.0.254"): true}
	check.Says(t, r.Refused(agentapi.CodeNoPool, both(r)), "pool v4: spec.macPolicy", "gateway 10.1.0.254 of pool other does not answer")
}

// An ADD waits for a full pool although another pool was rejected.
func TestAnADDWaitsForTheFullPoolBesideARejectedOne(t *testing.T) {
	r := fakenode.New(t, fromIP(fakenode.V4("10.0.0.2")), other())
	r.Kind = pod.IPVLAN
	holder := r.Pod("holder", "u0")
	holder.Network.DefaultIPv4IPPool = []string{"other"}
	r.Gets(holder, "10.1.0.2")
	web := both(r)
	r.Wire.Forget()
	done := make(chan error, 1)
	go func() { done <- check.Err(r.Add(t.Context(), web)) }()
	r.Eventually("it waits", func() bool { return r.Waits.Now() == 1 })
	r.MustDel(holder)
	check.OK(t, <-done)
	r.Want("10.1.0.2 Bound")
}

// The first family keeps its address.
func TestARejectedIPv6AddressLeavesTheIPv4Address(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"), fakenode.Pool("v6", "fd00::/64", v1alpha1.ModeEnforce, "fd00::2-fd00::9"))
	r.Wire.OnClaim = func(c segment.Claim) {
		if c.Addr == netip.MustParseAddr("fd00::2") {
			r.Kernel.Claimed(fakenode.Key("fd00::2"), c.Token+1)
		}
	}
	web := r.Pod("web", "u1")
	r.Death.Did = nil
	r.Gets(web, "10.0.0.2", "fd00::3")
	r.Want("10.0.0.2 Bound", v1alpha1.LeaseName("", netip.MustParseAddr("fd00::3"))+" Bound")
	r.HoldsWhatTheJournalSays(web)
	check.That(t, r.Speaks(web, "10.0.0.2") && r.Speaks(web, "fd00::3") && !r.Speaks(web, "fd00::2"), "it speaks for another address")
	isIn(t, r.Death.Did, "uninstall fd00::2", "delete "+v1alpha1.LeaseName("", netip.MustParseAddr("fd00::2")), "journal Intent", "create "+v1alpha1.LeaseName("", netip.MustParseAddr("fd00::3")))
}

// isIn expects steps in their order, perhaps with others in between.
func isIn(t *testing.T, did []string, want ...string) {
	t.Helper()
	rest := want
	for _, step := range did {
		if len(rest) > 0 && step == rest[0] {
			rest = rest[1:]
		}
	}
	check.That(t, len(rest) == 0, "%v lacks %v in its order", did, rest)
}

// A Warm address that was written is freed, and not put back.
func TestAWarmAddressThatIsRejectedIsFreed(t *testing.T) {
	r := fakenode.New(t, fakenode.Warmed(checked(fakenode.V4("10.0.0.2-10.0.0.9"))), other())
	r.WarmLease("10.0.0.7", true)
	r.Wire.Silent = map[netip.Addr]bool{netip.MustParseAddr(gateway): true}
	r.Gets(both(r), "10.1.0.2")
	r.Want("10.1.0.2 Bound")
}

// The pod wants this address, and no other.
func TestARequestedOrKeptAddressThatIsRejectedEndsTheADD(t *testing.T) {
	for _, why := range rejections {
		t.Run("requested, and "+why.name, func(t *testing.T) {
			r := fakenode.New(t, why.pool(), other())
			why.fact(r)
			web := both(r)
			web.IPs = []netip.Addr{fakenode.Two}
			check.Says(t, r.Refused(why.code, web), why.says)
			check.None(t, r.Attachments.All(), "journal")
		})
		if why.name == "the race for maxPerNamespace is lost" { // its lease counts already
			continue
		}
		t.Run("kept, and "+why.name, func(t *testing.T) {
			r := fakenode.New(t, why.pool(), other())
			r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
			why.fact(r)
			check.Says(t, r.Refused(why.code, both(r, fakenode.OfStatefulSet)), why.says)
			r.Want("10.0.0.2 Retained")
		})
	}
}
