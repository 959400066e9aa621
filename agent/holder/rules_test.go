// SPDX-License-Identifier: Apache-2.0

package holder_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/cni/agentapi"
	"github.com/fenceline/fenceline/test/check"
	"github.com/fenceline/fenceline/test/fakenode"
)

// reserve keeps addresses back from now on.
func reserve(r *fakenode.Node, ips ...string) {
	r.API.Put(&v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: v1alpha1.ReservedIPSpec{IPs: ips}})
}

func TestAReservedAddressIsNotHandedOut(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.4"))
	reserve(r, "10.0.0.2", "10.0.0.9-10.0.0.1")
	check.That(t, r.MustAdd(r.Pod("a", "u1"))[0] != "10.0.0.2", "a reserved address is handed out")
	reserve(r, "10.0.0.2-10.0.0.4")
	check.Says(t, r.Refused(agentapi.CodeNoPool, r.Pod("b", "u2")), "pool v4: all its addresses are reserved")
}

func TestAnAddressInUseThatIsReservedStaysWithItsPod(t *testing.T) {
	r, web := fakenode.WithPod(t, fakenode.V4("10.0.0.2-10.0.0.3"))
	reserve(r, "10.0.0.2")
	err := r.Check(t.Context(), agentapi.CheckRequest{Attachment: web.Attachment})
	check.That(t, err == nil && r.Speaks(web, "10.0.0.2"), "CHECK: %v", err)
	r.Settle()
	r.Want("10.0.0.2 Bound")
	asks := r.Pod("asks", "u2")
	asks.IPs = []netip.Addr{fakenode.Two}
	check.Says(t, r.Refused(agentapi.CodeAddressRefused, asks), "10.0.0.2", "it is reserved")

	// A newer sandbox of the same pod keeps it as well.
	newer := next(web, "c-newer")
	r.Gets(newer, "10.0.0.2")
	// Once it is free it is nobody's.
	r.MustDel(newer)
	for i := range 3 {
		other := r.Pod(fmt.Sprintf("other-%d", i), fmt.Sprintf("v%d", i))
		r.Gets(other, "10.0.0.3")
		r.MustDel(other)
	}
}

// disabled closes a pool.
func disabled(p *v1alpha1.IPPool) *v1alpha1.IPPool {
	p.Spec.Disable = new(true)
	return p
}

func TestAKeptAddressIsNeverLostToAChangeOfItsPool(t *testing.T) {
	r := fakenode.New(t, disabled(fakenode.V4("10.0.0.3-10.0.0.9")))
	reserve(r, "10.0.0.0/24")
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
	web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	r.Gets(web, "10.0.0.2")
	r.MustDel(web)
	r.Want("10.0.0.2 Retained")
}

// The lease goes while the ADD waits for it: a closed pool gives no other address.
func TestAClosedPoolGivesNoNewAddressInPlaceOfAKeptOne(t *testing.T) {
	r := fakenode.New(t, disabled(fakenode.V4("10.0.0.2-10.0.0.9")))
	r.API.Put(fakenode.Held("10.0.0.2"))
	r.API.Before = func(verb, name string) error {
		if verb == "get" {
			delete(r.API.Objects, fakenode.KeyFor(fakenode.Held("10.0.0.2"), client.ObjectKey{Name: name}))
		}
		return nil
	}
	check.Says(t, r.Refused(agentapi.CodeNoPool, r.Pod("web-0", "u1", fakenode.OfStatefulSet)), "pool v4: it is disabled")
	r.WantNothing()
}

func TestAnotherAddressThanTheKeptOneIsAskedFor(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"), fakenode.Pool("v4-too", "10.1.0.0/24", v1alpha1.ModeEnforce))
	r.API.Put(fakenode.Held("10.0.0.2", fakenode.Retained))
	web := r.Pod("web-0", "u1", fakenode.OfStatefulSet)
	for _, addr := range []string{"10.0.0.5", "10.1.0.5"} {
		web.IPs = []netip.Addr{netip.MustParseAddr(addr)}
		check.Says(t, r.Refused(agentapi.CodeAddressRefused, web), addr, "10.0.0.2 is kept for the pod")
	}
	r.Want("10.0.0.2 Retained")
	web.IPs = []netip.Addr{fakenode.Two}
	r.Gets(web, "10.0.0.2")
}

func TestARequestedAddressIsGivenOnce(t *testing.T) {
	p := fakenode.V4("10.0.0.2-10.0.0.9")
	p.Spec.Gateway = new("10.0.0.1")
	r := fakenode.New(t, p)
	asking := func(name, uid string) agentapi.AddRequest {
		request := r.Pod(name, uid)
		request.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.5")}
		return request
	}
	answer := check.Value(r.Add(t.Context(), asking("first", "u1")))(t)
	got := answer.IPs[0]
	check.That(t, got.Address.Addr().String() == "10.0.0.5" && got.Gateway.String() == "10.0.0.1", "got %+v", got)
	check.That(t, len(answer.Routes) == 1 && answer.Routes[0].Dst.String() == "0.0.0.0/0", "routes %+v", answer.Routes)
	const says = "it is taken: Bound for pod shop/first on node n1"
	check.Says(t, r.Refused(agentapi.CodeAddressRefused, asking("second", "u2")), says)
	events := r.Told()
	check.That(t, len(events) == 1 && strings.Contains(events[0], says), "events %q", events)
	r.Want("10.0.0.5 Bound")
}

// The rotation alone would give the address that was freed first: it is the one after the last. Without a
// cooldown, only the address that was freed last is left alone.
func TestAFreedAddressCoolsDown(t *testing.T) {
	for cooldown, next := range map[time.Duration][]string{time.Hour: {"10.0.0.3", "10.0.0.2"}, 0: {"10.0.0.2", "10.0.0.3"}} {
		p := fakenode.V4("10.0.0.2", "10.0.0.4", "10.0.0.6")
		p.Spec.Reclaim = &v1alpha1.Reclaim{Cooldown: &v1alpha1.Duration{Duration: cooldown}}
		r := fakenode.New(t, p)
		first, second := r.Pod("a", "u1"), r.Pod("b", "u2")
		got := append(append(r.MustAdd(first), r.MustAdd(second)...), r.MustAdd(r.Pod("c", "u3"))...)
		check.Must(t, slices.Equal(got, p.Spec.IPs), "got %v", got)
		r.MustDel(first)
		r.MustDel(second)
		p.Spec.IPs = append(p.Spec.IPs, "10.0.0.3")
		r.API.Put(p)
		check.List(t, append(r.MustAdd(r.Pod("d", "u4")), r.MustAdd(r.Pod("e", "u5"))...), next, "with a cooldown of %s: got", cooldown)
	}
}

// second is the ADD of another interface of the same sandbox.
func second(r agentapi.AddRequest, iface string) agentapi.AddRequest {
	r.Interface = iface
	return r
}

func TestTwoInterfacesOfAPodOnOnePoolGetTwoAddresses(t *testing.T) {
	r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.9"))
	web := r.Pod("web", "u1")
	r.Gets(web, "10.0.0.2")
	r.Gets(second(web, "net1"), "10.0.0.3")
	r.MustDel(second(web, "net1"))
	r.Want("10.0.0.2 Bound")
	check.That(t, r.Speaks(web, "10.0.0.2"), "the first interface is mute")
	r.MustDel(web)
	r.Want()
}

// withLAN gives a pod net1 with an address of pool lan.
func withLAN(p *corev1.Pod) {
	fakenode.Annotated("k8s.v1.cni.cncf.io/networks", "lan")(p)
	fakenode.Annotated("ipam.fenceline.io/ippools", `[{"interface":"eth0","ipv4":["v4"]},{"interface":"net1","ipv4":["lan"]}]`)(p)
}

// The runtime makes sandbox after sandbox while the second interface cannot be
// served, and its DELs may come late or never.
func TestAnExhaustedInterfaceDoesNotDrainThePoolOfTheOther(t *testing.T) {
	for _, withDEL := range []bool{true, false} {
		t.Run(fmt.Sprintf("DEL %v", withDEL), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lan := fakenode.Pool("lan", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2")
				r := fakenode.New(t, fakenode.V4("10.0.0.2-10.0.0.4"), lan)
				full := fakenode.Held("10.1.0.2")
				full.Spec.Pool = "lan"
				r.API.Put(full)
				web := r.Pod("web", "u1", withLAN)
				for i := range 10 {
					try := next(web, fmt.Sprintf("c%d", i))
					r.MustAdd(try)
					r.Refused(agentapi.CodeExhausted, second(try, "net1"))
					if withDEL {
						r.MustDel(try)
					}
				}
				want := []string{"10.1.0.2 Bound"}
				if !withDEL {
					want = []string{"10.0.0.2 Bound", "10.1.0.2 Bound"}
				}
				r.Want(want...)
			})
		})
	}
}

func TestTheClusterNetworkOfMultusMeetsMultusName(t *testing.T) {
	own := fakenode.V4("10.0.0.2-10.0.0.9")
	own.Spec.MultusName = []string{"kube-system/macvlan"}
	r := fakenode.New(t, own)
	web := r.Pod("web", "u1", namingPools("v4"))
	r.Refused(agentapi.CodeNoPool, web)
	found := ipam.Multus{Cluster: "kube-system/macvlan"}
	r.Multus = func() (ipam.Multus, error) { return found, nil }
	r.MustAdd(web)
	r.MustDel(web)
	r.Want()
	r.Multus = func() (ipam.Multus, error) { return ipam.Multus{}, errors.New("input/output error") }
	check.Says(t, check.Err(r.Add(t.Context(), web)), "input/output error")
}

func TestRoutesInTheAnswer(t *testing.T) {
	first, lan := fakenode.V4("10.0.0.2-10.0.0.9"), fakenode.Pool("lan", "10.1.0.0/24", v1alpha1.ModeEnforce, "10.1.0.2-10.1.0.9")
	first.Spec.Gateway, lan.Spec.Gateway = new("10.0.0.1"), new("10.1.0.1")
	first.Spec.Routes = []v1alpha1.Route{{Dst: "10.8.0.0/16", Gw: "10.0.0.254"}}
	r := fakenode.New(t, first, lan)
	web := r.Pod("web", "u1", withLAN,
		fakenode.Annotated("ipam.fenceline.io/routes", `[{"dst":"10.9.0.0/16","gw":"10.1.0.254"},{"dst":"10.7.0.0/16","gw":"10.0.0.253"}]`))
	for _, c := range []struct{ iface, gateway, routes string }{
		{"eth0", "10.0.0.1", "0.0.0.0/0 invalid IP, 10.8.0.0/16 10.0.0.254, 10.7.0.0/16 10.0.0.253"},
		{"net1", "10.1.0.1", "10.9.0.0/16 10.1.0.254"},
	} {
		answer := check.Value(r.Add(t.Context(), second(web, c.iface)))(t)
		var got []string
		for _, route := range answer.Routes {
			got = append(got, route.Dst.String()+" "+route.GW.String())
		}
		check.That(t, strings.Join(got, ", ") == c.routes && answer.IPs[0].Gateway.String() == c.gateway,
			"%s: gateway %s, routes %q, want %q", c.iface, answer.IPs[0].Gateway, strings.Join(got, ", "), c.routes)
	}
}

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
			check.Equal(t, len(r.API.Leases()), len(row.there), "leases:")
		})
	}
}

func TestAnotherPoolServesANamespaceThatHasItsAddresses(t *testing.T) {
	r := fakenode.New(t, atMost(1, fakenode.V4("10.0.0.2-10.0.0.9")), other())
	r.API.Put(leaseFor("shop", "10.0.0.3", nil))
	web := r.Pod("web-0", "u")
	web.Network.DefaultIPv4IPPool = []string{"v4", "other"}
	r.Gets(web, "10.1.0.2")
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
	check.OK(t, r.Del(t.Context(), fakenode.Del(web)))
	r.Gets(r.Pod("web-0", "u2", fakenode.OfStatefulSet), first...)
}

// A pod with addresses of two pools takes what one of them allows.
func TestAPodTakesFromRoutersOnlyWhatItsPoolsAllow(t *testing.T) {
	for _, row := range []struct {
		four, six v1alpha1.RouterAdvertisements
		strict    bool
	}{{"", "", true}, {v1alpha1.RoutersIgnored, "", true}, {"", v1alpha1.RoutersAccepted, false}, {v1alpha1.RoutersAccepted, "", false}} {
		pools := fakenode.Dual()
		pools[0].Spec.RouterAdvertisements, pools[1].Spec.RouterAdvertisements = row.four, row.six
		r := fakenode.New(t, pools...)
		request := r.Pod("web", "u1")
		r.MustAdd(request)
		check.Equal(t, slices.Equal(r.Strict, []string{request.NetNS}), row.strict, "IPv4 %q, IPv6 %q: routers are ignored:", row.four, row.six)
	}
}
