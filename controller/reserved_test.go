//go:build api

package main

import (
	"context"
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

	"github.com/fenceline/fenceline/agent/allocate"
	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/agent/lease"
	"github.com/fenceline/fenceline/apis/v1alpha1"
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
			"an address in use is reserved once it is free":                 reservedInUse,
			"an entry that cannot be read is reported, the others hold":     reservedInvalid,
			"a pool that is wholly reserved is not ready":                   whollyReserved,
			"an address in use that leaves its pool is named, and not lost": edits,
			"a disabled pool keeps what is in use":                          disabled,
			"a pool that is deleted says what it waits for":                 deletion,
			"overlapping pools say so in both, and give no address twice":   sharedByPools,
			"a pool that hands out another's gateway says so":               gatewayHandedOut,
			"Warm leases are scarce below one for each agent":               scarce,
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

func (w world) remove(o client.Object) {
	w.Helper()
	if err := w.client.Delete(w.ctx, o); err != nil {
		w.Fatal(err)
	}
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

// says wants a condition to be "status/reason" with all the words.
func says(condition, statusAndReason string, words ...string) func(v1alpha1.IPPoolStatus) bool {
	return func(s v1alpha1.IPPoolStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, condition)
		return is(condition, statusAndReason)(s) &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) })
	}
}

// drain allocates as the agent of the node does, with what the API server tells,
// until the pool is exhausted, and returns what it has been given.
func (w world) drain(node, pool string) []string {
	w.Helper()
	var all v1alpha1.IPPoolList
	var reservations v1alpha1.ReservedIPList
	if err := errors.Join(w.client.List(w.ctx, &all), w.client.List(w.ctx, &reservations)); err != nil {
		w.Fatal(err)
	}
	request := ipam.Request{
		Pod:      ipam.Pod{Namespace: "default", Name: "drain-" + pool, UID: "1"},
		NodeName: node, Interface: "eth0", ConfigPools: ipam.ConfigPools{V4: []string{pool}},
	}
	choice, err := ipam.ChoosePools(request, all.Items, ipam.ReservedSet(reservations.Items))
	if err != nil {
		w.Fatal(err)
	}
	family, err := choice.Families[0].Open()
	if err != nil {
		w.Fatal(err)
	}
	return w.drainFamily(w.runningPod("drain-"+pool+"-"+node, node), family)
}

// drainFamily gives all addresses of the family to one pod, a container each.
func (w world) drainFamily(pod *corev1.Pod, family ipam.Family) []string {
	w.Helper()
	node := pod.Spec.NodeName
	store := lease.NewStore(lease.Options{
		Client: w.client, Reader: w.client, Node: node, Session: node + "/boot", Clock: clock.RealClock{},
	})
	allocator := allocate.New(allocate.Options{Leases: store, Clock: clock.RealClock{}})
	var got []string
	for i := 0; ; i++ {
		l, _, err := allocator.OnDemand(w.ctx, allocate.Wish{
			Family: family,
			Holder: v1alpha1.Holder{
				Namespace: pod.Namespace, Pod: pod.Name, PodUID: string(pod.UID), ContainerID: fmt.Sprintf("%s-%d", node, i), Guarded: true,
			},
			Try: func(context.Context, *v1alpha1.IPPool, *v1alpha1.IPLease) (allocate.Outcome, error) {
				return allocate.Granted, nil
			},
		})
		if none := (*ipam.NoPoolError)(nil); errors.As(err, &none) {
			return got
		}
		if err != nil {
			w.Errorf("node %s: %v", node, err)
			return got
		}
		got = append(got, l.Spec.Address)
	}
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
	if now := w.lease(l.Name); now == nil || now.Spec.State != v1alpha1.StateBound || now.UID != l.UID {
		w.Errorf("the lease of a reserved address is %+v", now)
	}

	// Another pod gets it: what is told follows.
	change(w, l, func(l *v1alpha1.IPLease) { l.Spec.Holder.Pod = "routed-1" })
	w.waitReservation("routers", "InUse", "True/AddressInUse", 1, "10.40.0.9 (pod default/routed-1)")

	w.remove(l)
	w.waitReservation("routers", "InUse", "False/None", 0)
	w.waitEvent("default", "InUseFalse", "routers")
	w.waitStatus("routed", "nothing is outside", is("Outside", "False/None"))
	if got := w.drain("n1", "routed"); len(got) != 10 || slices.Contains(got, "10.40.0.9") {
		w.Errorf("an agent was given %v of a pool with 10 addresses that are not reserved", got)
	}
	w.waitStatus("routed", "exhausted", says("Exhausted", "True/NoAddress", "all 10 addresses"))
	w.waitReservation("routers", "InUse", "False/None", 0)

	w.remove(r)
	w.waitStatus("routed", "all addresses are back", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 14 && s.Reserved == 0 && is("Exhausted", "False/AddressLeft")(s)
	})
	if got := w.drain("n2", "routed"); len(got) != 4 {
		w.Errorf("an agent was given %v, want the 4 that were reserved", got)
	}
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

func whollyReserved(w world) {
	w.pool("whole", "10.42.0.0/29")
	first := w.reserve("whole-1", "10.42.0.0/30")
	w.reserve("whole-2", "10.42.0.4-10.42.0.6")
	w.waitStatus("whole", "wholly reserved", func(s v1alpha1.IPPoolStatus) bool {
		return s.Total == 0 && s.Reserved == 6 && is("Ready", "False/AllReserved")(s) && is("Exhausted", "False/None")(s)
	})
	w.remove(first)
	w.waitStatus("whole", "ready again", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 3 && is("Ready", "True/Ready")(s) })
}

// edits takes an address in use out of its pool in each way that there is.
func edits(w world) {
	pool := w.pool("edited", "10.43.0.0/28")
	pod := w.runningPod("edited-0", "n1")
	l := w.bound("edited", "10.43.0.9", pod)
	whole := pool.Spec.DeepCopy()
	for _, edit := range []func(*v1alpha1.IPPoolSpec){
		func(s *v1alpha1.IPPoolSpec) { s.IPs = []string{"10.43.0.2-10.43.0.8"} },
		func(s *v1alpha1.IPPoolSpec) { s.ExcludeIPs = []string{"10.43.0.9"} },
		func(s *v1alpha1.IPPoolSpec) { s.Gateway = ptr.To("10.43.0.9") },
	} {
		change(w, pool, func(p *v1alpha1.IPPool) { edit(&p.Spec) })
		w.waitStatus("edited", "names the lease outside, and marks its address", func(s v1alpha1.IPPoolStatus) bool {
			return says("Outside", "True/AddressInUse", "10.43.0.9 (pod default/edited-0)")(s) && is("Ready", "True/Ready")(s) &&
				s.Used == 1 && slices.Equal(marks(s.InUse), []uint64{9})
		})
		change(w, pool, func(p *v1alpha1.IPPool) { p.Spec = *whole.DeepCopy() })
		w.waitStatus("edited", "has its address back", is("Outside", "False/None"))
	}
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.ExcludeIPs = []string{"10.43.0.8/29"} })
	w.waitStatus("edited", "names the lease outside", is("Outside", "True/AddressInUse"))
	if got := w.drain("n1", "edited"); len(got) != 7 || slices.Contains(got, "10.43.0.9") {
		w.Errorf("an agent was given %v of a pool with 7 addresses", got)
	}
	if now := w.lease(l.Name); now == nil || now.UID != l.UID || now.Spec.State != v1alpha1.StateBound {
		w.Errorf("the lease outside is %+v", now)
	}
	w.waitStatus("edited", "exhausted by 7 leases, the one outside is not of them", says("Exhausted", "True/NoAddress", "all 7 addresses", "8 Bound"))
	w.remove(l)
	w.waitStatus("edited", "nothing is outside", is("Outside", "False/None"))
}

func disabled(w world) {
	pool := w.pool("disabled", "10.44.0.0/28")
	l := w.bound("disabled", "10.44.0.9", w.runningPod("disabled-0", "n1"))
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Disable = ptr.To(true) })
	w.waitStatus("disabled", "says so", func(s v1alpha1.IPPoolStatus) bool {
		return is("Ready", "False/Disabled")(s) && is("Outside", "False/None")(s) && s.Bound == 1
	})
	w.waitEvent("default", "ReadyFalse", "disabled", "spec.disable")
	if now := w.lease(l.Name); now == nil || now.UID != l.UID || now.Spec.State != v1alpha1.StateBound {
		w.Errorf("the lease of a disabled pool is %+v", now)
	}
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Disable = nil })
	w.waitStatus("disabled", "is ready again", is("Ready", "True/Ready"))
}

func deletion(w world) {
	pool := w.pool("leaving", "10.45.0.0/28")
	l := w.bound("leaving", "10.45.0.9", w.runningPod("leaving-0", "n1"))
	kept := w.retained("leaving", "10.45.0.10", "leaving", 0, forever)
	w.waitStatus("leaving", "two leases", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 2 })
	w.remove(pool)
	w.waitStatus("leaving", "says what it waits for", says("Ready", "False/Deleting", "1 Bound, 1 Retained"))
	w.remove(l)
	w.waitStatus("leaving", "waits for the Retained one", says("Ready", "False/Deleting", "gone: 1 Retained"))
	w.remove(kept)
	w.eventually("end of the pool", func() error {
		if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(pool), pool); client.IgnoreNotFound(err) != nil {
			return err
		} else if err == nil {
			return fmt.Errorf("its status is %+v", pool.Status)
		}
		return nil
	})
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
		set, err := ipam.Addresses(pools[i])
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

func scarce(w world) {
	pool := w.pool("scarce", "10.48.0.0/29")
	change(w, pool, func(p *v1alpha1.IPPool) { p.Spec.Warm = ptr.To[int64](1) })
	pod := w.runningPod("scarce-0", "n1")
	var leases []*v1alpha1.IPLease
	for _, a := range addresses("10.48.0.1", 4) {
		leases = append(leases, w.bound("scarce", a, pod))
	}
	w.waitStatus("scarce", "two left for two agents", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 4 && s.Agents == 2 && !s.Scarce })
	leases = append(leases, w.bound("scarce", "10.48.0.5", pod))
	w.waitStatus("scarce", "one left for two agents", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 5 && s.Scarce })
	w.remove(leases[0])
	w.waitStatus("scarce", "two left are not enough yet", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 4 && s.Scarce })
	w.remove(leases[1])
	w.waitStatus("scarce", "three left", func(s v1alpha1.IPPoolStatus) bool { return s.Used == 3 && !s.Scarce })
}

// scarceOnOneNode: the labels of nodes decide how many agents keep Warm leases.
func scarceOnOneNode(w world) {
	w.create(&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "rack"}, Spec: v1alpha1.IPPoolSpec{
		Subnet: "10.49.0.0/30", Warm: ptr.To[int64](2),
		NodeAffinity: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}},
	}})
	label := func(node, rack string) {
		change(w, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, func(n *corev1.Node) { n.Labels = map[string]string{"rack": rack} })
	}
	label("n1", "a")
	// More than once, for the first change may be seen while the pool is looked at anyway.
	for range 3 {
		label("n2", "b")
		w.waitStatus("rack", "for one node nothing is scarce", func(s v1alpha1.IPPoolStatus) bool { return s.Total == 2 && s.Agents == 2 && !s.Scarce })
		label("n2", "a")
		w.waitStatus("rack", "for two nodes it is", func(s v1alpha1.IPPoolStatus) bool { return s.Scarce })
	}
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
