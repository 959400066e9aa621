// SPDX-License-Identifier: Apache-2.0

//go:build api

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

// TestPoolsAndReservations runs one controller. Its subtests have pools and
// addresses of their own, since a reservation is for every pool.
func TestPoolsAndReservations(t *testing.T) {
	w, server := newWorld(t)
	w.readyNode("n1")
	w.readyNode("n2")
	w.runController(server.Admin(), policy(), clock.RealClock{})
	t.Run("together", func(t *testing.T) {
		for name, test := range map[string]func(world){
			"an address in use is reserved once it is free":               reservedInUse,
			"an entry that cannot be read is reported, the others hold":   reservedInvalid,
			"an address that is kept for somebody":                        reservedForSomebody,
			"a virtual address":                                           reservedVirtual,
			"the addresses of a load balancer":                            reservedByService,
			"the address of a machine":                                    reservedForMachine,
			"a pool that is deleted says what it waits for":               deletion,
			"a conflict ends when no pool hands the address out":          unwantedConflicts,
			"the labels of nodes follow a pool":                           labelledNodes,
			"overlapping pools say so in both, and give no address twice": sharedByPools,
			"an edit takes no address from another team's pool":           extended,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(w.in(t))
			})
		}
	})
	// Events of other pools would wake these as well.
	t.Run("alone: a reservation that comes and goes wakes a pool", func(t *testing.T) { reservedAndBack(w.in(t)) })
	t.Run("alone: a pool for one node is not scarce for the others", func(t *testing.T) { scarceOnOneNode(w.in(t)) })
}

func (w world) reserve(name string, ips ...string) *v1alpha1.ReservedIP {
	w.Helper()
	r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ReservedIPSpec{IPs: ips}}
	w.create(r)
	return r
}

// waitReservation waits until a condition of the reservation is "status/reason" and has all the words.
func (w world) waitReservation(name, condition, statusAndReason string, inUse int64, words ...string) {
	w.Helper()
	w.eventually(fmt.Sprintf("reservation %s: %s is %s", name, condition, statusAndReason), func() error {
		r := &v1alpha1.ReservedIP{}
		if err := w.client.Get(w.ctx, client.ObjectKey{Name: name}, r); err != nil {
			return err
		}
		c := meta.FindStatusCondition(r.Status.Conditions, condition)
		if c == nil || fmt.Sprintf("%s/%s", c.Status, c.Reason) != statusAndReason || r.Status.InUse != inUse {
			return fmt.Errorf("status is %+v", r.Status)
		}
		for _, word := range words {
			if !strings.Contains(c.Message, word) {
				return fmt.Errorf("it says %q, not %q", c.Message, word)
			}
		}
		return nil
	})
}

func labelledNodes(w world) {
	const label = v1alpha1.LabelPool + "racked"
	pool := w.pool("racked", "10.57.0.0/28")
	values := func(what, n1, n2 string) {
		w.Helper()
		w.eventually(what, func() error {
			var nodes corev1.NodeList
			err := w.client.List(w.ctx, &nodes)
			for _, n := range nodes.Items {
				value, want := n.Labels[label], map[string]string{"n1": n1, "n2": n2}[n.Name]
				err = errors.Join(err, unless(value == want, "node %s has %q, want %q", n.Name, value, want))
			}
			return err
		})
	}
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.NodeName = []string{"n1"} })
	values("a pool for one node", "true", "false")
	lease := w.bound("racked", "10.57.0.3", w.runningPod("racked-0", "n1"))
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.NodeName = []string{"n2"} })
	values("a pool that leaves a node with pods", "true", "true")
	check.OK(w, w.client.Delete(w.ctx, lease))
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.NodeName = []string{"n2", "n3"} })
	values("the pods are gone", "false", "true")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.NodeName = nil })
	values("a pool for all nodes", "", "")
}

func reservedInUse(w world) {
	w.pool("routed", "10.40.0.0/28")
	pod := w.runningPod("routed-0", "n1")
	l := w.bound("routed", "10.40.0.9", pod)
	r := w.reserve("routers", "10.40.0.8-10.40.0.11", "fd00:40::/64")
	w.waitReservation("routers", "InUse", "True/AddressInUse", 1, "10.40.0.9 (pod default/routed-0)")
	w.waitReservation("routers", "Ready", "True/Ready", 1)
	w.waitEvent("default", "InUseTrue", "routers", "10.40.0.9")
	w.waitStatus("routed", "4 of 14 are reserved, one of them is in use", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 10 && s.Reserved == 4 && s.Used == 1 && says("Outside", "True/AddressInUse", "10.40.0.9 (pod default/routed-0)")(s)
	})
	w.waitEvent("default", "OutsideTrue", "routed", "10.40.0.9")
	w.waitMetric("fenceline_pool_reserved_addresses pool=routed", func(v float64) bool { return v == 4 })
	w.waitMetric("fenceline_pool_outside_leases pool=routed", func(v float64) bool { return v == 1 })
	now := w.lease(l.Name)
	check.That(w, now != nil && now.Spec.State == v1alpha1.StateBound && now.UID == l.UID, "the lease of a reserved address is %+v", now)

	// Another pod gets it: what is told follows.
	next := w.runningPod("routed-1", "n1")
	change(w, l, func(l *v1alpha1.IPLease) { l.Spec.Holder.Pod, l.Spec.Holder.PodUID = next.Name, string(next.UID) })
	w.waitReservation("routers", "InUse", "True/AddressInUse", 1, "10.40.0.9 (pod default/routed-1)")

	w.remove(l)
	w.waitReservation("routers", "InUse", "False/None", 0)
	w.waitEvent("default", "InUseFalse", "routers")
	w.waitStatus("routed", "nothing is outside", is("Outside", "False/None"))
	got := w.drain("n1", "routed")
	check.That(w, len(got) == 10 && !slices.Contains(got, "10.40.0.9"), "an agent was given %v of a pool with 10 addresses that are not reserved", got)
	w.waitStatus("routed", "exhausted", says("Exhausted", "True/NoAddress", "all 10 addresses"))
	w.waitReservation("routers", "InUse", "False/None", 0)

	w.remove(r)
	w.waitStatus("routed", "all addresses are back", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 14 && s.Reserved == 0 && is("Exhausted", "False/AddressLeft")(s)
	})
	check.Equal(w, len(w.drain("n2", "routed")), 4, "an agent was given the addresses that were reserved:")
}

// A pool has no addresses but those of a pod: it is Ready, and the pod's lease is no fault.
func reservedForSomebody(w world) {
	w.pool("own", "10.42.0.0/30")
	pod := w.runningPod("owns-0", "n1")
	keep := func(name string, whom v1alpha1.ReservedFor, ips ...string) *v1alpha1.ReservedIP {
		whom.Namespace = pod.Namespace
		r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ReservedIPSpec{IPs: ips, For: &whom}}
		w.create(r)
		return r
	}
	keep("own", v1alpha1.ReservedFor{Pod: pod.Name}, "10.42.0.1-10.42.0.2")
	w.waitReservation("own", v1alpha1.ConditionSubjectMissing, "False/None", 0)
	w.waitStatus("own", "it is Ready for its pod", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 0 && s.Reserved == 2 && is("Ready", "True/Ready")(s)
	})
	w.bound("own", "10.42.0.1", pod)
	w.waitStatus("own", "the pod's lease is inside", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 1 && is("Outside", "False/None")(s) })
	w.waitReservation("own", "InUse", "False/None", 0)
	w.bound("own", "10.42.0.2", w.runningPod("other-0", "n1"))
	w.waitStatus("own", "another's is outside", says("Outside", "True/AddressInUse", "10.42.0.2 (pod default/other-0)"))
	w.waitReservation("own", "InUse", "True/AddressInUse", 1, "10.42.0.2 (pod default/other-0)")

	second := keep("second", v1alpha1.ReservedFor{StatefulSet: "nobody"}, "10.42.0.2", "10.42.1.0/24")
	w.waitReservation("second", v1alpha1.ConditionSubjectMissing, "True/NotFound", 1, "there is no StatefulSet default/nobody")
	w.waitReservation("second", v1alpha1.ConditionContested, "True/ReservedTwice", 1, "ReservedIP own")
	w.waitReservation("own", v1alpha1.ConditionContested, "True/ReservedTwice", 1, "ReservedIP second")
	w.remove(second)
	w.waitReservation("own", v1alpha1.ConditionContested, "False/None", 1)

	keep("machine", v1alpha1.ReservedFor{VirtualMachine: "vm"}, "10.42.2.1")
	w.waitReservation("machine", v1alpha1.ConditionSubjectMissing, "True/NotFound", 0, "there is no virtual machine default/vm")
	for _, bad := range []v1alpha1.ReservedIPSpec{
		{IPs: []string{"10.42.3.1"}, Network: "lab"},
		{IPs: []string{"10.42.3.1"}, For: &v1alpha1.ReservedFor{Namespace: "default", Pod: "a", StatefulSet: "b"}},
		{IPs: []string{"10.42.3.1"}, For: &v1alpha1.ReservedFor{Pod: "a"}},
		{IPs: []string{"10.42.3.1"}, Virtual: &v1alpha1.ReservedVirtual{Namespace: "default"}},
		{IPs: []string{"10.42.3.0/30"}, Virtual: virtual()},
		{IPs: []string{"10.42.3.1"}, Virtual: virtual(), For: &v1alpha1.ReservedFor{Namespace: "default"}},
		{IPs: []string{"10.42.3.1"}, For: &v1alpha1.ReservedFor{}},
		{IPs: []string{"10.42.3.1"}, For: &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:0A"}},
		{IPs: []string{"10.42.3.1"}, For: &v1alpha1.ReservedFor{MAC: "03:00:00:00:00:0a"}},
		{IPs: []string{"10.42.3.1"}, For: &v1alpha1.ReservedFor{MAC: "02-00-00-00-00-0a"}},
		{IPs: []string{"10.42.3.1"}, For: &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:0a", Namespace: "default"}},
		{IPs: []string{"10.42.3.1"}, For: &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:0a", Pod: "a"}},
		{IPs: []string{"10.42.3.0/30"}, For: &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:0a"}},
	} {
		err := w.client.Create(w.ctx, &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: bad})
		check.That(w, err != nil, "the API server takes %+v", bad)
	}
}

func virtual() *v1alpha1.ReservedVirtual {
	return &v1alpha1.ReservedVirtual{Namespace: "default", MatchLabels: map[string]string{"app": "nobody"}}
}

// The speakers, which agents write, outlive each pass of the controller, but not their address.
func reservedVirtual(w world) {
	w.pool("virtual", "10.43.0.0/28")
	r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "virtual"}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.43.0.5", "10.44.0.5"}, Virtual: virtual()}}
	w.create(r)
	w.waitReservation("virtual", "Ready", "False/Invalid", 0, "spec.ips[1]: no pool without a network has 10.44.0.5 in its subnet")
	w.waitReservation("virtual", v1alpha1.ConditionSubjectMissing, "True/NotFound", 0, "there is no pod with app=nobody in namespace default")
	w.waitStatus("virtual", "nobody gets it", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 13 && s.Reserved == 1 })
	changeStatus(w, r, func(r *v1alpha1.ReservedIP) {
		for _, a := range r.Spec.IPs {
			r.Status.Speakers = append(r.Status.Speakers, v1alpha1.Speaker{Address: a, Pod: "a", Node: "n1", MAC: "02:00:00:00:00:01", Since: metav1.NowMicro()})
		}
	})
	change(w, r, func(r *v1alpha1.ReservedIP) { r.Spec.IPs = r.Spec.IPs[:1] })
	w.waitReservation("virtual", "Ready", "True/Ready", 0)
	check.OK(w, w.client.Get(w.ctx, client.ObjectKeyFromObject(r), r))
	check.That(w, len(r.Status.Speakers) == 1 && r.Status.Speakers[0].Address == "10.43.0.5", "speakers %+v", r.Status.Speakers)
	second := r.DeepCopy()
	second.Name, second.ResourceVersion = "virtual-second", ""
	w.create(second)
	w.waitReservation("virtual", v1alpha1.ConditionContested, "True/ReservedTwice", 0, "ReservedIP virtual-second")
}

// An agent records a stranger, and then the machine again.
func reservedForMachine(w world) {
	w.pool("machines", "10.89.0.0/30")
	r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "bare-metal"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{"10.89.0.1", "10.89.0.2"}, For: &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:0a"},
	}}
	w.create(r)
	w.waitReservation("bare-metal", v1alpha1.ConditionConflict, "False/None", 0)
	w.waitReservation("bare-metal", v1alpha1.ConditionContested, "False/None", 0)
	w.waitStatus("machines", "no pod gets an address", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 0 && s.Reserved == 2 && is("Ready", "False/AllReserved")(s)
	})
	heard := func(mac string) {
		w.Helper()
		changeStatus(w, r, func(r *v1alpha1.ReservedIP) {
			r.Status.Speakers = []v1alpha1.Speaker{{Address: "10.89.0.2", Node: "n1", MAC: mac, Since: metav1.NowMicro()}}
		})
	}
	heard("02:00:00:00:00:0b")
	w.waitReservation("bare-metal", v1alpha1.ConditionConflict, "True/AnotherHost", 0, "10.89.0.2 by 02:00:00:00:00:0b (heard by node n1)")
	w.waitEvent("default", "ConflictTrue", "bare-metal", "02:00:00:00:00:0b")
	heard("02:00:00:00:00:0a")
	w.waitReservation("bare-metal", v1alpha1.ConditionConflict, "False/None", 0)
}

// The Service comes after a pod that has one of its addresses, and goes again.
func reservedByService(w world) {
	w.pool("balanced", "10.88.0.0/28")
	w.bound("balanced", "10.88.0.6", w.runningPod("balanced-0", "n1"))
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "balanced"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	w.create(s)
	for name, change := range map[string]func(*v1alpha1.ReservedIPSpec){
		"balanced-own":     func(r *v1alpha1.ReservedIPSpec) { r.For = &v1alpha1.ReservedFor{Namespace: "default", Pod: "own"} },
		"balanced-virtual": func(r *v1alpha1.ReservedIPSpec) { r.Virtual = virtual() },
	} {
		r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{"10.88.0.5"}}}
		if change(&r.Spec); name == "balanced-virtual" {
			r.Spec.IPs = []string{"10.88.0.7"}
		}
		w.create(r)
	}
	w.waitReservation("balanced-own", v1alpha1.ConditionContested, "False/None", 0)
	w.waitStatus("balanced", "two are reserved", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 12 && s.Reserved == 2 && s.Free == 11 })

	for _, ip := range []string{"10.88.0.5", "10.88.0.6", "10.88.0.7", "10.88.0.8"} {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	check.OK(w, w.client.Status().Update(w.ctx, s))
	w.waitStatus("balanced", "four are reserved, of which a pod has one", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 10 && s.Reserved == 4 && s.Free == 10 && says("Outside", "True/AddressInUse", "10.88.0.6 (pod default/balanced-0)")(s)
	})
	w.waitReservation("balanced-own", v1alpha1.ConditionContested, "True/ReservedTwice", 0, "Service default/balanced of type LoadBalancer")
	w.waitReservation("balanced-virtual", v1alpha1.ConditionContested, "False/None", 0)
	check.That(w, w.lease("10.88.0.6").Spec.State == v1alpha1.StateBound, "the address is taken from its pod")

	w.remove(s)
	w.waitStatus("balanced", "they are back", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 12 && s.Reserved == 2 && is("Outside", "False/None")(s)
	})
	w.waitReservation("balanced-own", v1alpha1.ConditionContested, "False/None", 0)
}

func reservedInvalid(w world) {
	w.pool("half", "10.41.0.0/28")
	w.reserve("half", "fd00:41::20-fd00:41::10", "10.41.0.5")
	w.waitReservation("half", "Ready", "False/Invalid", 0, "spec.ips[0]", "ends before it starts")
	w.waitEvent("default", "ReadyFalse", "half", "spec.ips[0]")
	w.waitStatus("half", "the good entry holds", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 13 && s.Reserved == 1 })

	r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "half"}}
	change(w, r, func(r *v1alpha1.ReservedIP) { r.Spec.IPs[0] = "fd00:41::10-fd00:41::20" })
	w.waitReservation("half", "Ready", "True/Ready", 0)
}

func reservedAndBack(w world) {
	w.pool("back", "10.52.0.0/28")
	for range 3 {
		w.waitStatus("back", "nothing is reserved", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 14 && s.Reserved == 0 })
		r := w.reserve("back", "10.52.0.1")
		w.waitStatus("back", "an address is reserved", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 13 && s.Reserved == 1 })
		w.remove(r)
	}
}

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
		check.That(w, err == nil, "%v", err)
		candidate := ipam.Candidate{Pool: pools[i], Subnet: netip.MustParsePrefix("10.46.0.0/24"), Set: set}
		given[i] = w.drainFamily(pods[i], ipam.Family{Pools: []ipam.Candidate{candidate}})
	})
	both := slices.Concat(given...)
	slices.Sort(both)
	check.That(w, len(slices.Compact(slices.Clone(both))) == len(both) && len(both) == 40,
		"%d and %d addresses, want 40 different ones together: %v", len(given[0]), len(given[1]), both)
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
