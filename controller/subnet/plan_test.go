// SPDX-License-Identifier: Apache-2.0

package subnet

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/demand"
	"github.com/fenceline/fenceline/internal/owner"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// settleTicks is the number of ticks after which an exclusion is settled.
const settleTicks = 1

// step changes the cluster before some passes.
type step func(*cluster)

func applies(app Application) step { return func(c *cluster) { c.apps[app.Ref.Name] = app } }

// TestPlans is a table of histories: steps, each with enough passes to settle, and the pools at the end.
func TestPlans(t *testing.T) {
	fixed := func(app Application, n int) Application {
		app.Demand.Size = demand.Size{Fixed: true, Addresses: n}
		return app
	}
	kept := func(app Application) Application {
		app.Demand.Reclaim = false
		return app
	}
	asking := func(app Application, interfaces ...demand.Interface) Application {
		app.Demand.Interfaces = interfaces
		return app
	}
	dual := func(app Application, v6 ...string) Application {
		app.Demand.Interfaces[0].V6 = v6
		return app
	}
	ends := func(name string) step { return func(c *cluster) { delete(c.apps, name) } }
	leases := func(addr string) step {
		return func(c *cluster) {
			pool, ok := c.poolWith(addr)
			if !ok {
				panic(addr + " is in no pool")
			}
			c.leases[netip.MustParseAddr(addr)] = pool
		}
	}
	frees := func(addr string) step { return func(c *cluster) { delete(c.leases, netip.MustParseAddr(addr)) } }
	reserves := func(ips ...string) step { return func(c *cluster) { c.reserved, _ = poolset.Parse(ips) } }
	edits := func(name string, edit func(*v1alpha1.IPSubnetSpec)) step {
		return func(c *cluster) {
			s := c.subnets[name]
			edit(&s.Spec)
			s.ResourceVersion = c.next()
			c.subnets[name] = s
		}
	}
	deletes := func(app string) step {
		return func(c *cluster) {
			pool, ok := c.poolOf(app)
			if !ok {
				panic(app + " has no pool")
			}
			pool.DeletionTimestamp, pool.ResourceVersion = new(at(c.now)), c.next()
			c.put(pool)
		}
	}
	draws := func(name string, ips ...string) step {
		return func(c *cluster) {
			c.make(v1alpha1.IPPool{ObjectMeta: subnetOf(name, "").ObjectMeta, Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24", IPs: ips}})
		}
	}
	ten := subnetOf("a", "10.0.0.0/24", "10.0.0.10-10.0.0.19")
	wide := subnetOf("a", "10.0.0.0/18")
	two := subnetOf("b", "10.1.0.0/24", "10.1.0.10-10.1.0.19")
	six := subnetOf("v6", "fd00::/64", "fd00::10-fd00::12")

	for name, c := range map[string]struct {
		subnets []v1alpha1.IPSubnet
		steps   []step
		// want has the addresses that the pools of an application hand out, by application and family.
		want map[string]string
		// unserved has a part of the message for each application that lacks addresses.
		unserved map[string]string
	}{
		"as many as there are replicas, and one more": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 3, "a"))},
			map[string]string{"web": "10.0.0.10-10.0.0.13"}, nil,
		},
		"an interface that is asked for by its name keeps the pool of its number": {
			[]v1alpha1.IPSubnet{ten, two}, []step{
				applies(kept(deployment("web", 0, "a"))), applies(deployment("db", 1, "a")), ends("web"),
				applies(kept(asking(deployment("web", 0), demand.Interface{Name: "eth0", V4: []string{"a"}}, demand.Interface{Name: "net1", V4: []string{"b"}}))),
			},
			map[string]string{"web": "10.0.0.10 10.1.0.10", "db": "10.0.0.11-10.0.0.12"}, nil,
		},
		"and the other way round": {
			[]v1alpha1.IPSubnet{ten}, []step{
				applies(kept(asking(deployment("web", 0), demand.Interface{Name: "eth0", V4: []string{"a"}}))), applies(deployment("db", 1, "a")), ends("web"),
				applies(kept(deployment("web", 0, "a"))),
			},
			map[string]string{"web": "10.0.0.10", "db": "10.0.0.11-10.0.0.12"}, nil,
		},
		"there and back again, with interfaces by their order": {
			[]v1alpha1.IPSubnet{ten, two}, []step{
				applies(asking(deployment("web", 1), demand.Interface{Name: "0", V4: []string{"a"}}, demand.Interface{Name: "1", V4: []string{"b"}})),
				leases("10.0.0.10"), leases("10.1.0.10"),
				applies(asking(deployment("web", 1), demand.Interface{Name: "eth0", V4: []string{"a"}}, demand.Interface{Name: "net1", V4: []string{"b"}})),
				applies(asking(deployment("web", 1), demand.Interface{Name: "0", V4: []string{"a"}}, demand.Interface{Name: "1", V4: []string{"b"}})),
			},
			map[string]string{"web": "10.0.0.10-10.0.0.11 10.1.0.10-10.1.0.11"}, nil,
		},
		"another interface gets a pool of its own": {
			[]v1alpha1.IPSubnet{ten}, []step{
				applies(kept(deployment("web", 0, "a"))), applies(deployment("db", 1, "a")),
				applies(kept(asking(deployment("web", 0), demand.Interface{Name: "eth0", V4: []string{"b"}}, demand.Interface{Name: "net1", V4: []string{"a"}}))),
			},
			map[string]string{"web": "10.0.0.13", "db": "10.0.0.11-10.0.0.12"}, map[string]string{"web": "IPSubnet b does not exist"},
		},
		"a fixed number": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(fixed(deployment("web", 3, "a"), 2))},
			map[string]string{"web": "10.0.0.10-10.0.0.11"}, nil,
		},
		"an application that runs no pods gets no addresses": {[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 0, "a"))}, nil, nil},
		"and gives its own back": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 5, "a")), applies(deployment("web", 0, "a")), applies(fixed(deployment("db", 1, "a"), 10))},
			map[string]string{"web": "", "db": "10.0.0.10-10.0.0.19"}, nil,
		},
		"a fixed number stays without replicas": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(fixed(deployment("web", 0, "a"), 2))}, map[string]string{"web": "10.0.0.10-10.0.0.11"}, nil,
		},
		"a pool that is kept has an address without replicas": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(kept(deployment("web", 3, "a"))), applies(kept(deployment("web", 0, "a")))},
			map[string]string{"web": "10.0.0.10"}, nil,
		},
		"from fixed to flexible, and back": {
			[]v1alpha1.IPSubnet{ten},
			[]step{applies(fixed(deployment("web", 1, "a"), 5)), applies(deployment("web", 1, "a")), applies(fixed(deployment("web", 1, "a"), 3))},
			map[string]string{"web": "10.0.0.10-10.0.0.12"}, nil,
		},
		"a pool shrinks only by free addresses": {
			[]v1alpha1.IPSubnet{ten},
			[]step{applies(deployment("web", 5, "a")), leases("10.0.0.15"), leases("10.0.0.14"), applies(deployment("web", 0, "a"))},
			map[string]string{"web": "10.0.0.14-10.0.0.15"}, nil,
		},
		"and by the rest once they are free": {
			[]v1alpha1.IPSubnet{ten},
			[]step{
				applies(deployment("web", 5, "a")), leases("10.0.0.15"), leases("10.0.0.14"), applies(deployment("web", 0, "a")),
				frees("10.0.0.15"),
			},
			map[string]string{"web": "10.0.0.14"}, nil,
		},
		"two families with different numbers of addresses": {
			[]v1alpha1.IPSubnet{ten, six}, []step{applies(dual(fixed(deployment("web", 1, "a"), 4), "v6"))},
			map[string]string{"web": "10.0.0.10-10.0.0.13"}, map[string]string{"web": "4 addresses are wanted, and IPSubnet v6 has fewer left"},
		},
		"two families that both have room": {
			[]v1alpha1.IPSubnet{ten, six}, []step{applies(dual(deployment("web", 1, "a"), "v6"))},
			map[string]string{"web": "10.0.0.10-10.0.0.11 fd00::10-fd00::11"}, nil,
		},
		"the first IPSubnet with room for the whole pool": {
			[]v1alpha1.IPSubnet{ten, two},
			[]step{applies(fixed(deployment("big", 1, "a"), 8)), applies(fixed(deployment("web", 1, "a", "b"), 3))},
			map[string]string{"big": "10.0.0.10-10.0.0.17", "web": "10.1.0.10-10.1.0.12"}, nil,
		},
		"a pool stays in its IPSubnet when an earlier one has room": {
			[]v1alpha1.IPSubnet{ten, two},
			[]step{applies(fixed(deployment("big", 1, "a"), 8)), applies(fixed(deployment("web", 1, "a", "b"), 3)), ends("big")},
			map[string]string{"web": "10.1.0.10-10.1.0.12"}, nil,
		},
		"an IPSubnet without room": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(fixed(deployment("big", 1, "a"), 8)), applies(fixed(deployment("web", 1, "a"), 3))},
			map[string]string{"big": "10.0.0.10-10.0.0.17"}, map[string]string{"web": "3 addresses are wanted, and IPSubnet a has fewer left"},
		},
		"its room comes back with the end of another application": {
			[]v1alpha1.IPSubnet{ten},
			[]step{applies(fixed(deployment("big", 1, "a"), 8)), applies(fixed(deployment("web", 1, "a"), 3)), ends("big")},
			map[string]string{"web": "10.0.0.10-10.0.0.12"}, nil,
		},
		"a pool that cannot grow keeps its addresses": {
			[]v1alpha1.IPSubnet{ten},
			[]step{applies(fixed(deployment("big", 1, "a"), 7)), applies(fixed(deployment("web", 1, "a"), 2)), applies(fixed(deployment("web", 1, "a"), 5))},
			map[string]string{"big": "10.0.0.10-10.0.0.16", "web": "10.0.0.17-10.0.0.19"}, map[string]string{"web": "5 addresses are wanted, and pool web-0-v4-"},
		},
		"reserved, excluded and virtual addresses are left out": {
			[]v1alpha1.IPSubnet{ten},
			[]step{
				reserves("10.0.0.11"), edits("a", func(s *v1alpha1.IPSubnetSpec) {
					s.ExcludeIPs, s.SourceGuardAllow = []string{"10.0.0.12-10.0.0.13"}, &v1alpha1.SourceGuardAllow{CIDRs: []v1alpha1.CIDR{"10.0.0.15/32"}}
				}),
				applies(fixed(deployment("web", 1, "a"), 3)),
			},
			map[string]string{"web": "10.0.0.10 10.0.0.14 10.0.0.16"}, nil,
		},
		"a free address that is reserved later is replaced": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(fixed(deployment("web", 1, "a"), 3)), leases("10.0.0.10"), reserves("10.0.0.11")},
			map[string]string{"web": "10.0.0.10 10.0.0.12-10.0.0.13"}, nil,
		},
		"pools that people drew keep their addresses": {
			[]v1alpha1.IPSubnet{ten}, []step{draws("mine", "10.0.0.10-10.0.0.12"), applies(fixed(deployment("web", 1, "a"), 2))},
			map[string]string{"web": "10.0.0.13-10.0.0.14"}, nil,
		},
		"an IPSubnet of other namespaces": {
			[]v1alpha1.IPSubnet{ten, two}, []step{
				edits("a", func(s *v1alpha1.IPSubnetSpec) { s.NamespaceName = []string{"bank"} }),
				applies(deployment("web", 1, "a")), applies(deployment("api", 1, "a", "b")),
			},
			map[string]string{"web": "", "api": "10.1.0.10-10.1.0.11"},
			map[string]string{"web": "IPSubnet a is for other namespaces: its namespaceName [bank] does not list namespace shop"},
		},
		"an IPSubnet of namespaces with a label": {
			[]v1alpha1.IPSubnet{ten}, []step{
				edits("a", func(s *v1alpha1.IPSubnetSpec) {
					s.NamespaceAffinity = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
				}),
				applies(deployment("web", 1, "a")), func(c *cluster) { c.labels = map[string]string{"tier": "gold"} },
			},
			map[string]string{"web": "10.0.0.10-10.0.0.11"}, nil,
		},
		"an IPSubnet that is closed to a namespace keeps the addresses in use": {
			[]v1alpha1.IPSubnet{ten}, []step{
				applies(deployment("web", 1, "a")), leases("10.0.0.10"),
				edits("a", func(s *v1alpha1.IPSubnetSpec) { s.NamespaceName = []string{"bank"} }),
			},
			map[string]string{"web": "10.0.0.10-10.0.0.11"}, map[string]string{"web": "IPSubnet a is for other namespaces"},
		},
		"a limit of the namespace": {
			[]v1alpha1.IPSubnet{ten},
			[]step{
				edits("a", func(s *v1alpha1.IPSubnetSpec) { s.MaxPerNamespace = new(int64(3)) }),
				applies(fixed(deployment("web", 1, "a"), 2)), applies(fixed(deployment("api", 1, "a"), 2)),
			},
			map[string]string{"web": "10.0.0.10-10.0.0.11"},
			map[string]string{"api": "2 addresses are wanted, and maxPerNamespace of IPSubnet a leaves fewer to namespace shop"},
		},
		"a pool that grows to the limit of the namespace": {
			[]v1alpha1.IPSubnet{ten},
			[]step{
				edits("a", func(s *v1alpha1.IPSubnetSpec) { s.MaxPerNamespace = new(int64(3)) }),
				applies(fixed(deployment("web", 1, "a"), 2)), applies(fixed(deployment("web", 1, "a"), 5)),
			},
			map[string]string{"web": "10.0.0.10-10.0.0.12"},
			map[string]string{"web": "has fewer: maxPerNamespace of IPSubnet a leaves no more to namespace shop"},
		},
		"a person deletes a pool without leases": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 1, "a")), deletes("web")},
			map[string]string{"web": "10.0.0.10-10.0.0.11"}, map[string]string{"web": "was deleted, and another one is made once it is gone"},
		},
		"a person deletes a pool with leases": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 1, "a")), leases("10.0.0.10"), deletes("web")},
			map[string]string{"web": "10.0.0.10-10.0.0.11"},
			map[string]string{"web": "another one is made once its last lease has ended: end the pods that 'kubectl get fllease --field-selector spec.pool=web-0-v4-"},
		},
		"the pool ends with its application": {[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 1, "a")), ends("web")}, nil, nil},
		"but not before its last lease": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 1, "a")), leases("10.0.0.10"), ends("web")},
			map[string]string{"web": "10.0.0.10-10.0.0.11"}, nil,
		},
		"a pool that is kept serves the next application of the kind and name": {
			[]v1alpha1.IPSubnet{ten},
			[]step{applies(kept(deployment("web", 1, "a"))), applies(deployment("api", 1, "a")), ends("web"), applies(kept(deployment("web", 2, "a")))},
			map[string]string{"web": "10.0.0.10-10.0.0.11 10.0.0.14", "api": "10.0.0.12-10.0.0.13"}, nil,
		},
		"another kind of the same name gets a pool of its own": {
			[]v1alpha1.IPSubnet{ten},
			[]step{applies(kept(deployment("web", 1, "a"))), ends("web"), func(c *cluster) {
				app := deployment("web", 1, "a")
				app.Ref.Kind = "StatefulSet"
				c.apps["web"] = app
			}},
			map[string]string{"web": "10.0.0.10-10.0.0.11 10.0.0.12-10.0.0.13"}, nil,
		},
		"an owner that cannot be counted needs a fixed number": {
			[]v1alpha1.IPSubnet{ten}, []step{func(c *cluster) {
				app := deployment("web", 0, "a")
				app.Uncounted = owner.ErrNoScale
				c.apps["web"] = app
			}},
			nil, map[string]string{"web": "give a fixed number in the annotation ippool-ip-number"},
		},
		"an owner that cannot be read now keeps its pool": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 2, "a")), func(c *cluster) {
				app := deployment("web", 0, "a")
				app.Uncounted = errors.New("internal error")
				c.apps["web"] = app
			}},
			map[string]string{"web": "10.0.0.10-10.0.0.12"}, map[string]string{"web": "cannot be read now: internal error"},
		},
		"a pool has at most 4096 addresses": {
			[]v1alpha1.IPSubnet{wide},
			[]step{applies(deployment("web", 4095, "a")), applies(deployment("web", 5000, "a")), applies(deployment("api", 5000, "a"))},
			map[string]string{"web": "10.0.0.1-10.0.16.0", "api": ""},
			map[string]string{"web": "5001 addresses are wanted, and pool web", "api": "at most 4096: split the application"},
		},
		"an IPSubnet that does not exist": {
			[]v1alpha1.IPSubnet{ten}, []step{applies(deployment("web", 1, "z"))},
			nil, map[string]string{"web": "IPSubnet z does not exist"},
		},
		"an IPSubnet of the other family": {
			[]v1alpha1.IPSubnet{six}, []step{applies(deployment("web", 1, "v6"))},
			nil, map[string]string{"web": "IPSubnet v6 is of the other IP version"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(c.subnets...)
			var last Plan
			for _, step := range c.steps {
				step(w)
				for range 8 {
					w.now++
					last = w.pass(settleTicks)
				}
			}
			for app, want := range c.want {
				check.Equal(t, w.given(app), want, "%s has", app)
			}
			check.That(t, len(c.want) != 0 || len(w.pools) == 0, "pools are left: %v", w.pools)
			told := map[string]string{}
			for _, u := range last.Unserved {
				told[u.Ref.Name] += u.Message
			}
			for app, part := range c.unserved {
				check.That(t, strings.Contains(told[app], part), "%s is told %q, want %q", app, told[app], part)
			}
			check.That(t, len(told) == len(c.unserved), "unserved: %v", told)
			check.OK(t, w.check())
		})
	}
}

// A reason stays the same while other applications come and go: each change of it would be told.
func TestReasonsDoNotChangeWithOtherApplications(t *testing.T) {
	limited := subnetOf("limited", "10.1.0.0/24")
	limited.Spec.MaxPerNamespace = new(int64(9))
	w := newCluster(subnetOf("a", "10.0.0.0/24", "10.0.0.10-10.0.0.19"), limited)
	settle := func() map[string]string {
		told := map[string]string{}
		for range 3 {
			w.now++
			for _, u := range w.pass(settleTicks).Unserved {
				told[u.Ref.Name] = u.Message
			}
		}
		return told
	}
	for _, subnet := range []string{"a", "limited"} {
		w.apps["big-in-"+subnet] = deployment("big-in-"+subnet, 15, subnet)
	}
	before := settle()
	for i, name := range []string{"one", "two", "three"} {
		for _, subnet := range []string{"a", "limited"} {
			w.apps[name+subnet] = deployment(name+subnet, 1, subnet)
		}
		got := settle()
		check.Equal(t, len(got), 2, "reasons:")
		check.Same(t, got, before, "after %d more applications, the reasons", i+1)
	}
}

// Passes go on by themselves only while a pool gives withdrawn addresses back. A pool of an IPSubnet that
// is gone or Invalid keeps them, and so does one without its application.
func TestPassesEndWhenNothingCanBeGivenBack(t *testing.T) {
	edited := func(edit func(*v1alpha1.IPSubnet)) step {
		return func(c *cluster) {
			s := c.subnets["a"]
			edit(&s)
			s.ResourceVersion = c.next()
			c.subnets["a"] = s
		}
	}
	for name, c := range map[string]struct {
		change step
		want   bool
	}{
		"the pool shrinks":        {func(*cluster) {}, true},
		"a lease holds the rest":  {func(c *cluster) { c.leases[netip.MustParseAddr("10.0.0.15")] = "" }, true},
		"the IPSubnet is gone":    {func(c *cluster) { delete(c.subnets, "a") }, false},
		"the IPSubnet is ending":  {edited(func(s *v1alpha1.IPSubnet) { s.DeletionTimestamp = new(at(0)) }), false},
		"the IPSubnet is Invalid": {edited(func(s *v1alpha1.IPSubnet) { s.Spec.IPs = []string{"10.0.0.9-10.0.0.1"} }), false},
		"the application is gone": {func(c *cluster) { delete(c.apps, "web") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCluster(subnetOf("a", "10.0.0.0/24", "10.0.0.10-10.0.0.19"))
			w.apps["web"] = deployment("web", 5, "a")
			const never = 1000
			w.pass(never)
			pool, _ := w.poolOf("web")
			w.leases[netip.MustParseAddr("10.0.0.10")] = pool.Name
			w.apps["web"] = deployment("web", 1, "a")
			check.Must(t, w.pass(never).Settling, "the pool has withdrawn nothing")
			c.change(w)
			for addr := range w.leases {
				w.leases[addr] = pool.Name
			}
			w.pass(never)
			p := w.pass(never)
			check.Equal(t, p.Settling, c.want, "settling")
			check.Equal(t, (&Reconciler{Settle: Settle}).nextPass(Facts{}, p) > 0, c.want, "passes go on:")
			pool, _ = w.poolOf("web")
			check.That(t, len(pool.Spec.ExcludeIPs) != 0, "nothing is withdrawn any more")
			// Once all is settled and given back, nothing is left to do.
			w.now += never + 1
			w.pass(settleTicks)
			check.That(t, !w.pass(settleTicks).Settling, "passes go on after all")
		})
	}
}

// A pool may be made and deleted between two passes. The count of free addresses is right in the pass that
// forgets its entry: no other pass follows.
func TestTheEntryOfAnEndedWriterIsFree(t *testing.T) {
	s := subnetOf("a", "10.0.0.0/24", "10.0.0.10-10.0.0.19")
	s.Status.Carving = []v1alpha1.Carving{{Pool: "web-1", IPs: []string{"10.0.0.10-10.0.0.11"}}}
	for expired, free := range map[bool]int64{false: 8, true: 10} {
		p := MakePlan(Facts{Subnets: []v1alpha1.IPSubnet{s}, Expired: map[string]bool{"web-1": expired}})
		got := p.Status("a", at(0))
		check.That(t, got.Free == free && len(got.Carving) > 0 != expired,
			"expired %t: %d addresses are free, want %d, and %v are about to be written", expired, got.Free, free, got.Carving)
	}
}

// The source guard of an IPSubnet is that of its pools, also of those that exist. If the IPSubnet sets
// none, people may set that of a single pool.
func TestPoolsFollowTheSourceGuardOfTheirIPSubnet(t *testing.T) {
	w := newCluster(subnetOf("a", "10.0.0.0/24", "10.0.0.10-10.0.0.19"))
	w.apps["web"] = deployment("web", 1, "a")
	settle := func() v1alpha1.IPPoolSpec {
		for range 3 {
			w.now++
			w.pass(settleTicks)
		}
		pool, _ := w.poolOf("web")
		return pool.Spec
	}
	settle()
	pool, _ := w.poolOf("web")
	pool.Spec.SourceGuard, pool.ResourceVersion = v1alpha1.SourceGuardObserve, w.next()
	w.put(pool)
	check.Equal(t, settle().SourceGuard, v1alpha1.SourceGuardObserve, "a person's setting of a pool became")
	s := w.subnets["a"]
	s.Spec.SourceGuard = v1alpha1.SourceGuardEnforce
	s.Spec.SourceGuardAllow = &v1alpha1.SourceGuardAllow{CIDRs: []v1alpha1.CIDR{"10.0.0.1/32"}}
	s.Spec.RouterAdvertisements = v1alpha1.RoutersAccepted
	s.ResourceVersion = w.next()
	w.subnets["a"] = s
	got := settle()
	check.Equal(t, got.SourceGuard, v1alpha1.SourceGuardEnforce, "the pool has")
	check.Equal(t, got.RouterAdvertisements, v1alpha1.RoutersAccepted, "the pool has")
	check.Same(t, got.SourceGuardAllow, s.Spec.SourceGuardAllow, "the pool has")
}

// given lists the addresses that the pools of an application hand out, IPv4 first.
func (c *cluster) given(app string) string {
	var parts []string
	for _, p := range c.pools {
		if a := p.Spec.Application; a != nil && a.Name == app {
			parts = append(parts, strings.Join(c.handsOut(p.Name).Entries(), " "))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// poolWith returns the pool of an address.
func (c *cluster) poolWith(addr string) (string, bool) {
	for name := range c.pools {
		if c.handsOut(name).Contains(netip.MustParseAddr(addr)) {
			return name, true
		}
	}
	return "", false
}
