// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/podview"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

func noon() metav1.Time { return metav1.NewTime(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)) }

// subnetPool is a pool over a whole subnet, created at the minute.
func subnetPool(name, subnet string, minute int) v1alpha1.IPPool {
	return v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3, CreationTimestamp: metav1.NewTime(noon().Add(time.Duration(minute) * time.Minute))},
		Spec:       v1alpha1.IPPoolSpec{Subnet: subnet},
	}
}

func lease(address string, state v1alpha1.LeaseState) v1alpha1.IPLease {
	l := v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{Address: address, Pool: "blue", State: state, Holder: &v1alpha1.Holder{Guarded: true}}}
	if state == v1alpha1.StateQuarantined {
		l.Spec.Reason = v1alpha1.ReasonPodGone
	}
	return l
}

func TestOneMACOnTwoNodesIsReported(t *testing.T) {
	const mac = "02:00:00:00:00:aa"
	at := func(address, node, pod string, change ...func(*v1alpha1.IPLease)) v1alpha1.IPLease {
		l := lease(address, v1alpha1.StateBound)
		l.Spec.NodeName = node
		l.Spec.Holder = &v1alpha1.Holder{Guarded: true, Namespace: "shop", Pod: pod, MAC: mac}
		for _, c := range change {
			c(&l)
		}
		return l
	}
	is := func(state v1alpha1.LeaseState) func(*v1alpha1.IPLease) {
		return func(l *v1alpha1.IPLease) { l.Spec.State = state }
	}
	has := func(mac string) func(*v1alpha1.IPLease) {
		return func(l *v1alpha1.IPLease) { l.Spec.Holder.MAC = mac }
	}
	machine := func(l *v1alpha1.IPLease) {
		l.Spec.Holder.OwnerGroup, l.Spec.Holder.OwnerKind, l.Spec.Holder.OwnerName = "kubevirt.io", "VirtualMachineInstance", "vm"
	}
	first := at("10.6.0.2", "n1", "a")
	const both = mac + " (pod shop/a on node n1, pod shop/b on node n2)"
	for _, row := range []struct {
		name   string
		leases []v1alpha1.IPLease
		allow  []string
		want   string
	}{
		{"two pods on two nodes", []v1alpha1.IPLease{first, at("10.6.0.3", "n2", "b")}, nil, both},
		{"in another order", []v1alpha1.IPLease{at("10.6.0.3", "n2", "b"), first}, nil, both},
		{"with two addresses each", []v1alpha1.IPLease{first, at("10.6.0.3", "n2", "b"), at("10.6.0.4", "n1", "a"), at("10.6.0.5", "n2", "b")}, nil, both},
		{"two addresses of a pod", []v1alpha1.IPLease{first, at("10.6.0.3", "n1", "a")}, nil, ""},
		{"ipvlan pods of a node", []v1alpha1.IPLease{first, at("10.6.0.3", "n1", "b")}, nil, ""},
		{"another MAC", []v1alpha1.IPLease{first, at("10.6.0.3", "n2", "b", has("02:00:00:00:00:ab"))}, nil, ""},
		{"holders without an interface", []v1alpha1.IPLease{at("10.6.0.2", "n1", "a", has("")), at("10.6.0.3", "n2", "b", has(""))}, nil, ""},
		{"the pool allows it", []v1alpha1.IPLease{first, at("10.6.0.3", "n2", "b")}, []string{"02:00:00:00:00:AA"}, ""},
		{"a live migration", []v1alpha1.IPLease{at("10.6.0.2", "n1", "x", machine), at("10.6.0.3", "n2", "y", machine)}, nil, ""},
		{"a pod whose name came back", []v1alpha1.IPLease{first, at("10.6.0.3", "n2", "a")}, nil, ""},
		{"a Quarantined lease", []v1alpha1.IPLease{first, at("10.6.0.3", "n2", "b", is(v1alpha1.StateQuarantined))}, nil, ""},
		{"a Retained lease", []v1alpha1.IPLease{first, at("10.6.0.3", "n2", "b", is(v1alpha1.StateRetained))}, nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := subnetPool("blue", "10.6.0.0/24", 0)
			if row.allow != nil {
				pool.Spec.SourceGuardAllow = &v1alpha1.SourceGuardAllow{MACs: row.allow}
			}
			r := NewReport(Facts{Pool: &pool, Leases: row.leases, Now: noon()})
			c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionSharedMAC)
			if row.want == "" {
				check.Equal(t, c.Status, metav1.ConditionFalse, "SharedMAC is")
				return
			}
			check.Equal(t, c.Status, metav1.ConditionTrue, "SharedMAC is")
			check.Says(t, c.Message, "on several nodes: "+row.want+"; other hosts reach only one of the pods")
		})
	}
}

func TestStatusCountsAndMarks(t *testing.T) {
	pool := subnetPool("blue", "10.6.0.0/24", 0)
	pool.Spec.Gateway, pool.Spec.IPSubnet = ptr.To("10.6.0.1"), "floor"
	r := NewReport(Facts{
		Pool: &pool,
		Leases: []v1alpha1.IPLease{
			lease("10.6.0.2", v1alpha1.StateBound),
			lease("10.6.0.3", v1alpha1.StateBound),
			lease("10.6.0.9", v1alpha1.StateWarm),
			lease("10.6.0.10", v1alpha1.StateQuarantined),
			lease("10.6.0.200", v1alpha1.StateRetained),
			lease("10.9.9.9", v1alpha1.StateRetained),
		},
		Cooling: []netip.Addr{netip.MustParseAddr("10.6.0.77")}, Agents: 2, Served: 1, Shares: 3, Now: noon(),
	})
	status := r.Status

	want := v1alpha1.IPPoolStatus{
		ObservedGeneration: 3, Total: 253, Used: 6, Free: 248, Bound: 2, Warm: 1, Quarantined: 1, Retained: 2, Stock: 2, Agents: 2, Served: 1, Shares: 3,
	}
	got := status
	got.InUse, got.Conditions = "", nil
	check.That(t, fmt.Sprint(got) == fmt.Sprint(want), "status\n%+v, want\n%+v", got, want)
	check.That(t, r.Quarantined[v1alpha1.ReasonPodGone] == 1, "quarantined by reason: %v", r.Quarantined)
	check.Equal(t, r.Subnet, "floor", "IPSubnet of the pool:")
	check.That(t, r.Free == 249 && r.Outside == 1,
		"%d free, %d outside, want all but the 4 that are bound, quarantined or retained, and 10.9.9.9", r.Free, r.Outside)
	bitmap := check.Value(poolset.DecodeBitmap(status.InUse))(t)
	var marked []uint64
	for i := range uint64(256) {
		if bitmap.Has(i) {
			marked = append(marked, i)
		}
	}
	check.That(t, slices.Equal(marked, []uint64{2, 3, 9, 10, 77, 200}),
		"marked %v: want the leases in the subnet and the one that cools down", marked)
}

func TestAnUnchangedWorldHasAnUnchangedStatus(t *testing.T) {
	pool := subnetPool("blue", "10.6.0.0/24", 0)
	leases := []v1alpha1.IPLease{lease("10.6.0.2", v1alpha1.StateBound)}
	pool.Status = NewReport(Facts{Pool: &pool, Leases: leases, Now: noon()}).Status
	again := NewReport(Facts{Pool: &pool, Leases: leases, Now: metav1.NewTime(noon().Add(time.Hour))}).Status
	check.That(t, fmt.Sprint(pool.Status) == fmt.Sprint(again), "an hour later\n%+v, was\n%+v", again, pool.Status)
}

func TestFreedAddressesCoolDown(t *testing.T) {
	first, second := netip.MustParseAddr("10.6.0.9"), netip.MustParseAddr("10.6.0.4")
	c := newNotes()
	c.cool("blue", first, noon().Time)
	c.cool("blue", second, noon().Add(10*time.Second))

	addrs, next := c.cooling("blue", 30*time.Second, noon().Add(20*time.Second))
	check.That(t, slices.Equal(addrs, []netip.Addr{second, first}) && next.Equal(noon().Add(30*time.Second)), "cooling %v until %v", addrs, next)
	addrs, _ = c.cooling("blue", 30*time.Second, noon().Add(30*time.Second))
	check.List(t, addrs, []netip.Addr{second}, "after 30 s:")
	addrs, next = c.cooling("green", 30*time.Second, noon().Time)
	check.That(t, len(addrs) == 0 && next.IsZero(), "another pool: %v until %v", addrs, next)
}

// count is what a look finds after a while, and what comes of it.
type count struct {
	after                 time.Duration
	said, counted, agents int
	wait                  time.Duration
}

// One that is gone for good must not let the next that is replaced be told of at once.
func TestFewerAgentsAreToldOfOnceTheyAreNotMerelyReplaced(t *testing.T) {
	for _, row := range []struct {
		name  string
		steps []count
	}{
		{"one is replaced, comes back, is replaced again and stays away", []count{
			{0, 0, 2, 2, 0}, {time.Second, 2, 1, 2, fewerGrace}, {time.Minute, 2, 1, 2, fewerGrace - time.Minute},
			{time.Minute, 2, 2, 2, 0}, {time.Minute, 2, 1, 2, fewerGrace}, {fewerGrace, 2, 1, 1, 0},
			{time.Second, 2, 1, 1, 0}, {time.Second, 1, 1, 1, 0}, // not written yet, and written
		}},
		{"another is more at once", []count{{0, 1, 3, 3, 0}}},
		{"none is left: one has gone, and another", []count{{0, 3, 0, 3, fewerGrace}}},
		{"nobody looked at the pool between", []count{
			{0, 3, 2, 3, fewerGrace}, {fewerGrace, 3, 2, 2, 0},
			{time.Hour, 2, 1, 2, fewerGrace}, {time.Minute, 2, 2, 2, 0},
		}},
		{"as the time of the other ends", []count{
			{0, 3, 2, 3, fewerGrace}, {fewerGrace - time.Second, 3, 1, 3, time.Second},
			{time.Second, 3, 1, 2, minInterval}, {minInterval, 2, 1, 2, fewerGrace}, {fewerGrace, 2, 1, 1, 0},
		}},
		{"which is not written yet", []count{{0, 3, 2, 3, fewerGrace}, {fewerGrace, 3, 2, 2, 0}, {time.Second, 3, 1, 2, minInterval}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, now := newNotes(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for i, s := range row.steps {
				now = now.Add(s.after)
				agents, wait := f.agents("blue", s.said, s.counted, now)
				check.Must(t, agents == s.agents && wait == s.wait, "step %d: %d agents, wait %s; want %d, %s", i, agents, wait, s.agents, s.wait)
			}
		})
	}
	f, now := newNotes(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.agents("blue", 3, 0, now)
	f.forget("blue")
	_, wait := f.agents("blue", 3, 0, now.Add(time.Hour))
	check.Equal(t, wait, fewerGrace, "a pool that was made anew waits")
}

func TestOneHostThatAnswersForManyAddressesIsNamed(t *testing.T) {
	const a, b = "02:bd:00:00:00:01", "02:bd:00:00:00:02"
	met := func(state v1alpha1.LeaseState, reason v1alpha1.LeaseReason, macs ...string) (leases []v1alpha1.IPLease) {
		for i, mac := range macs {
			l := lease(fmt.Sprintf("10.6.0.%d", i+1), state)
			l.Spec.Reason, l.Spec.Conflict = reason, &v1alpha1.Conflict{MAC: mac}
			leases = append(leases, l)
		}
		return leases
	}
	conflict := func(macs ...string) []v1alpha1.IPLease {
		return met(v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, macs...)
	}
	for _, row := range []struct {
		name   string
		leases []v1alpha1.IPLease
		mode   v1alpha1.ConflictMode
		ignore []string
		want   string // the MACs in the message; empty: False
	}{
		{"no conflict", nil, "", nil, ""},
		{"two addresses of one host", conflict(a, a), "", nil, ""},
		{"three hosts of one address each", conflict(a, b, "02:bd:00:00:00:03"), "", nil, ""},
		{"three addresses of one host", conflict(a, a, a), "", nil, a},
		{"two such hosts, in the order of their MACs", conflict(b, b, a, a, b, a), "", nil, a + ", " + b},
		{"a host that the pool ignores", conflict(a, a, a, b, b, b), "", []string{a}, b},
		{"another reason than the conflict", met(v1alpha1.StateQuarantined, v1alpha1.ReasonPodGone, a, a, a), "", nil, ""},
		{"pods that defend their addresses", met(v1alpha1.StateBound, "", a, a, a), "", nil, ""},
		{"pods of a pool that only observes", met(v1alpha1.StateBound, "", a, a, a), v1alpha1.ModeObserve, nil, a},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := subnetPool("blue", "10.6.0.0/28", 1)
			pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: row.mode, IgnoreMACs: row.ignore}
			r := NewReport(Facts{Pool: &pool, Leases: row.leases, Now: noon()})
			c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionAnsweredByOne)
			want := "False/None"
			if row.want != "" {
				want = "True/ManyConflicts"
			}
			got := fmt.Sprintf("%s/%s", c.Status, c.Reason)
			check.That(t, got == want && strings.Contains(c.Message, row.want), "%s: %s", got, c.Message)
			check.That(t, (row.want != "") == (r.HostsOfMany > 0), "%d hosts", r.HostsOfMany)
		})
	}
}

// TestStock is the specification of the stocks of pools whose spec.warm is unset.
func TestStock(t *testing.T) {
	warm := func(n int) []v1alpha1.IPLease { return leasesFrom("10.6.0.1", n, v1alpha1.StateWarm) }
	bound := func(n int) []v1alpha1.IPLease { return leasesFrom("10.6.0.1", n, v1alpha1.StateBound) }
	const slash26, slash27, slash28 = "10.6.0.0/26", "10.6.0.0/27", "10.6.0.0/28" // 62, 30 and 14 addresses
	for _, row := range []struct {
		name   string
		subnet string
		warm   *int64
		mode   v1alpha1.ConflictMode
		served int
		was    int64
		leases []v1alpha1.IPLease
		want   int64
	}{
		{"a pool with room keeps two for each node", slash26, nil, "", 3, 0, nil, 2},
		{"what the pool says counts: none", slash26, ptr.To[int64](0), "", 3, 2, nil, 0},
		{"what the pool says counts: five", slash28, ptr.To[int64](5), "", 3, 0, bound(14), 5},
		{"a small pool keeps none, even for one node", slash28, nil, "", 1, 0, nil, 0},
		{"30 addresses are few", slash27, nil, "", 1, 2, nil, 0},
		{"in mode Off no address is probed", slash26, nil, v1alpha1.ModeOff, 3, 2, nil, 0},
		{"in mode Observe addresses are probed", slash26, nil, v1alpha1.ModeObserve, 3, 0, nil, 2},
		{"a pool whose agents are not counted has one at least", slash26, nil, "", 0, 0, nil, 2},

		// Two on each of 3 nodes are 6: it begins above 30 and ends at 24.
		{"it begins above five times what all keep: 31 left", slash26, nil, "", 3, 0, bound(31), 2},
		{"not at five times: 30 left", slash26, nil, "", 3, 0, bound(32), 1},
		{"it goes on above four times: 25 left", slash26, nil, "", 3, 2, bound(37), 2},
		{"it falls to one at four times: 24 left", slash26, nil, "", 3, 2, bound(38), 1},
		{"it does not come back with one address: 25 left", slash26, nil, "", 3, 1, bound(37), 1},
		// One on each of 3 nodes are 3: it begins above 15 and ends at 12.
		{"one begins above five times: 16 left", slash26, nil, "", 3, 0, bound(46), 1},
		{"not at five times: 15 left", slash26, nil, "", 3, 0, bound(47), 0},
		{"one goes on above four times: 13 left", slash26, nil, "", 3, 1, bound(49), 1},
		{"it ends at four times: 12 left", slash26, nil, "", 3, 1, bound(50), 0},
		{"a full pool keeps none", slash26, nil, "", 3, 2, bound(62), 0},
		{"what is Warm is left, so that full stocks do not end stocks", slash26, nil, "", 3, 2, warm(37), 2},
		{"many nodes on few addresses keep none", slash26, nil, "", 16, 0, nil, 0},
		{"fewer nodes keep one", slash26, nil, "", 12, 0, nil, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := subnetPool("blue", row.subnet, 0)
			pool.Spec.Warm, pool.Status.Stock = row.warm, row.was
			pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{Mode: row.mode}
			r := NewReport(Facts{Pool: &pool, Leases: row.leases, Agents: 100, Served: row.served, Now: noon()})
			check.That(t, r.Status.Stock == row.want, "stock %d with %d left, want %d", r.Status.Stock, r.Free, row.want)
		})
	}
}

// However many pods a pool has, agents that follow its stock come to rest, and a pod of any node
// finds an address that is not Warm on another node.
func TestStocksComeToRestAndKeepNoPodFromAnAddress(t *testing.T) {
	const total = 62
	for agents := 1; agents <= 8; agents++ {
		for used := range total + 1 {
			pool := subnetPool("blue", "10.6.0.0/26", 0)
			var changes []int64
			for range 10 {
				kept := min(int(pool.Status.Stock)*agents, total-used)
				leases := append(leasesFrom("10.6.0.1", used, v1alpha1.StateBound), leasesFrom("10.6.0.1", total, v1alpha1.StateWarm)[used:used+kept]...)
				if stock := NewReport(Facts{Pool: &pool, Leases: leases, Served: agents, Now: noon()}).Status.Stock; stock != pool.Status.Stock {
					changes = append(changes, stock)
					pool.Status.Stock = stock
				}
			}
			check.That(t, len(changes) <= 1, "with %d agents and %d addresses in use: %v", agents, used, changes)
			kept := int(pool.Status.Stock) * agents
			check.That(t, kept == 0 || total-used-kept >= 3*kept, "with %d agents and %d addresses in use, %d are Warm and only %d free", agents, used, kept, total-used-kept)
		}
	}
}

// TestWhatOfAnAgentWakesPools: an agent may wait for its node for long, and which
// nodes have one is in the status of the pools that serve some nodes only.
func TestWhatOfAnAgentWakesPools(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*podview.Pod)
		want   bool
	}{
		{"nothing that a pool tells of", func(p *podview.Pod) { p.ResourceVersion = "2" }, false},
		{"its index", func(p *podview.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationAgentIndex: "1"} }, true},
		{"its node", func(p *podview.Pod) { p.Spec.NodeName = "n1" }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			was, is := &podview.Pod{}, &podview.Pod{}
			row.change(is)
			check.Equal(t, agentChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}), row.want, "passed:")
		})
	}
}

func TestScarcity(t *testing.T) {
	warm := func(n int) []v1alpha1.IPLease { return leasesFrom("10.6.0.1", n, v1alpha1.StateWarm) }
	bound := func(n int) []v1alpha1.IPLease { return leasesFrom("10.6.0.1", n, v1alpha1.StateBound) }
	for _, row := range []struct {
		name   string
		warm   *int64
		served int
		was    bool
		leases []v1alpha1.IPLease
		want   bool
	}{
		// A /28 has 14 addresses.
		{"without warm leases nothing is scarce", nil, 100, false, nil, false},
		{"with none wanted nothing is scarce", ptr.To[int64](0), 100, true, bound(14), false},
		{"as many left as all agents keep ready", ptr.To[int64](2), 7, false, nil, false},
		{"fewer left than all agents keep ready", ptr.To[int64](2), 8, false, nil, true},
		{"what is bound is not left", ptr.To[int64](2), 7, false, bound(1), true},
		{"what is warm is left, or giving it up would bring it back", ptr.To[int64](2), 7, false, warm(14), false},
		{"warm ones outside of the pool are not left", ptr.To[int64](2), 7, false, leasesFrom("10.6.0.20", 9, v1alpha1.StateWarm), false},
		{"one agent keeps nobody from an address", ptr.To[int64](2), 1, false, bound(14), false},
		{"one agent that wants more than there is", ptr.To[int64](200), 1, false, nil, false},
		{"two agents that want more than there is", ptr.To[int64](200), 2, false, nil, true},
		{"no agent", ptr.To[int64](2), 0, true, bound(14), false},

		{"it begins below what all agents keep ready: 8 left for 4 agents", ptr.To[int64](2), 4, false, bound(6), false},
		{"7 left for 4 agents", ptr.To[int64](2), 4, false, bound(7), true},
		{"it does not end with one more: 8 left", ptr.To[int64](2), 4, true, bound(6), true},
		{"nor just below a quarter more: 9 left", ptr.To[int64](2), 4, true, bound(5), true},
		{"it ends with a quarter more: 10 left", ptr.To[int64](2), 4, true, bound(4), false},
		{"at least with one more: 2 left for 2 agents", ptr.To[int64](1), 2, true, bound(12), true},
		{"3 left for 2 agents", ptr.To[int64](1), 2, true, bound(11), false},
		{"of a pool with no quarter more it ends when nothing is in use", ptr.To[int64](2), 7, true, nil, false},
		{"and not before", ptr.To[int64](2), 7, true, bound(1), true},
		{"of a pool that is too small it never ends", ptr.To[int64](2), 8, true, nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := subnetPool("blue", "10.6.0.0/28", 0)
			pool.Spec.Warm, pool.Status.Scarce = row.warm, row.was
			r := NewReport(Facts{Pool: &pool, Leases: row.leases, Agents: 100, Served: row.served, Now: noon()})
			check.That(t, r.Status.Scarce == row.want, "scarce %v with %d free, want %v", r.Status.Scarce, r.Free, row.want)
		})
	}
}

// TestScarcityDoesNotFlap: agents that give up when asked and keep ready
// otherwise come to rest, whatever the pool has and is used for.
func TestScarcityDoesNotFlap(t *testing.T) {
	const agents, each = 4, 2
	for used := range 15 {
		pool := subnetPool("blue", "10.6.0.0/28", 0)
		pool.Spec.Warm = ptr.To[int64](each)
		var changes []bool
		for range 20 {
			n := 0
			if !pool.Status.Scarce {
				n = min(agents*each, 14-used)
			}
			leases := leasesFrom("10.6.0.1", used, v1alpha1.StateBound)
			for i, l := range leasesFrom("10.6.0.1", 14, v1alpha1.StateWarm) {
				if i >= used && i < used+n {
					leases = append(leases, l)
				}
			}
			scarce := NewReport(Facts{Pool: &pool, Leases: leases, Served: agents, Now: noon()}).Status.Scarce
			if scarce != pool.Status.Scarce {
				changes = append(changes, scarce)
			}
			pool.Status.Scarce = scarce
		}
		check.That(t, len(changes) <= 1, "with %d of 14 in use: %v", used, changes)
		// While it is not scarce, every agent finds an address although all others keep theirs.
		check.That(t, pool.Status.Scarce || 14-used-(agents-1)*each >= 1,
			"with %d of 14 in use it is not scarce, and the others keep all of the rest", used)
	}
}

func TestServedNodes(t *testing.T) {
	var agents []podview.Pod
	for _, node := range []string{"n1", "n2", "n3"} {
		agents = append(agents, podview.Pod{Spec: podview.Spec{NodeName: node}})
	}
	racks := map[string]labels.Set{"n1": {"rack": "a"}, "n2": {"rack": "b"}}
	rack := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"rack": name}}
	}
	for _, row := range []struct {
		name string
		spec v1alpha1.IPPoolSpec
		want int
	}{
		{"a pool for all nodes", v1alpha1.IPPoolSpec{}, 3},
		{"an empty nodeAffinity is for all nodes", v1alpha1.IPPoolSpec{NodeAffinity: &metav1.LabelSelector{}}, 3},
		{"nodeName", v1alpha1.IPPoolSpec{NodeName: []string{"n3", "n1", "n9"}}, 2},
		{"nodeAffinity", v1alpha1.IPPoolSpec{NodeAffinity: rack("a")}, 1},
		{"nodeAffinity that no node meets", v1alpha1.IPPoolSpec{NodeAffinity: rack("c")}, 0},
		{"nodeName goes before nodeAffinity", v1alpha1.IPPoolSpec{NodeName: []string{"n3"}, NodeAffinity: rack("a")}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			check.Equal(t, served(&v1alpha1.IPPool{Spec: row.spec}, agents, racks), row.want, "nodes:")
		})
	}
}
