package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/agent/ipam"
	"github.com/fenceline/fenceline/apis/v1alpha1"
)

func noon() metav1.Time { return metav1.NewTime(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)) }

// subnetPool is a pool over a whole subnet, created at the minute.
func subnetPool(name, subnet string, minute int) v1alpha1.IPPool {
	return v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Generation: 3,
			CreationTimestamp: metav1.NewTime(noon().Add(time.Duration(minute) * time.Minute)),
		},
		Spec: v1alpha1.IPPoolSpec{Subnet: subnet},
	}
}

func lease(address string, state v1alpha1.LeaseState) v1alpha1.IPLease {
	l := v1alpha1.IPLease{Spec: v1alpha1.IPLeaseSpec{
		Address: address, Pool: "blue", State: state, Holder: &v1alpha1.Holder{Guarded: true},
	}}
	if state == v1alpha1.StateQuarantined {
		l.Spec.Reason = v1alpha1.ReasonPodGone
	}
	return l
}

func TestStatusCountsAndMarks(t *testing.T) {
	pool := subnetPool("blue", "10.6.0.0/24", 0)
	pool.Spec.Gateway = ptr.To("10.6.0.1")
	status, quarantined := Status(Facts{
		Pool: &pool,
		Leases: []v1alpha1.IPLease{
			lease("10.6.0.2", v1alpha1.StateBound),
			lease("10.6.0.3", v1alpha1.StateBound),
			lease("10.6.0.9", v1alpha1.StateWarm),
			lease("10.6.0.10", v1alpha1.StateQuarantined),
			lease("10.6.0.200", v1alpha1.StateRetained),
			lease("10.9.9.9", v1alpha1.StateRetained),
		},
		Cooling: []netip.Addr{netip.MustParseAddr("10.6.0.77")},
		Agents:  2,
		Shares:  3,
		Now:     noon(),
	})

	want := v1alpha1.IPPoolStatus{
		ObservedGeneration: 3, Total: 253, Used: 6, Bound: 2, Warm: 1, Quarantined: 1, Retained: 2, Agents: 2, Shares: 3,
	}
	got := status
	got.InUse, got.Conditions = "", nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("status\n%+v, want\n%+v", got, want)
	}
	if quarantined[v1alpha1.ReasonPodGone] != 1 {
		t.Errorf("quarantined by reason: %v", quarantined)
	}
	bitmap, err := ipam.DecodeBitmap(status.InUse)
	if err != nil {
		t.Fatal(err)
	}
	var marked []uint64
	for i := range uint64(256) {
		if bitmap.Has(i) {
			marked = append(marked, i)
		}
	}
	if !slices.Equal(marked, []uint64{2, 3, 9, 10, 77, 200}) {
		t.Errorf("marked %v: want the leases in the subnet and the one that cools down", marked)
	}
}

func TestConditions(t *testing.T) {
	unguarded := lease("10.6.0.2", v1alpha1.StateBound)
	unguarded.Spec.Holder.Guarded = false
	reversed := subnetPool("blue", "fd00:6::/64", 1)
	reversed.Spec.IPs = []string{"fd00:6::20-fd00:6::10"}
	deleting := subnetPool("blue", "10.6.0.0/29", 1)
	deleting.DeletionTimestamp = ptr.To(noon())
	excluded := subnetPool("blue", "10.6.0.0/30", 1)
	excluded.Spec.ExcludeIPs = []string{"10.6.0.1-10.6.0.2"}
	elsewhere := subnetPool("elsewhere", "10.6.0.0/24", 0)
	elsewhere.Spec.Network = "lab"
	apart := subnetPool("apart", "10.6.0.0/24", 0)
	apart.Spec.IPs = []string{"10.6.0.100-10.6.0.110"}

	for _, row := range []struct {
		name   string
		pool   v1alpha1.IPPool
		leases []v1alpha1.IPLease
		others []v1alpha1.IPPool
		want   map[string]string // condition type to "status/reason"
	}{
		{"a good pool", subnetPool("blue", "10.6.0.0/29", 1), nil, nil, map[string]string{
			"Ready": "True/Ready", "Overlapping": "False/None", "Exhausted": "False/AddressLeft", "Unfenced": "False/AllHoldersGuarded"}},
		{"an IPv6 range that ends before it starts", reversed, nil, nil, map[string]string{"Ready": "False/Invalid"}},
		{"nothing left to hand out", excluded, nil, nil, map[string]string{"Ready": "False/NoAddress", "Exhausted": "False/AddressLeft"}},
		{"being deleted", deleting, nil, nil, map[string]string{"Ready": "False/Deleting"}},
		{"exhausted", subnetPool("blue", "10.6.0.0/30", 1),
			[]v1alpha1.IPLease{lease("10.6.0.1", v1alpha1.StateBound), lease("10.6.0.2", v1alpha1.StateQuarantined)}, nil,
			map[string]string{"Ready": "True/Ready", "Exhausted": "True/NoAddress"}},
		{"a holder without guard", subnetPool("blue", "10.6.0.0/29", 1), []v1alpha1.IPLease{unguarded}, nil,
			map[string]string{"Unfenced": "True/HolderWithoutGuard"}},
		{"an older pool has some of the addresses", subnetPool("blue", "10.6.0.0/29", 1), nil,
			[]v1alpha1.IPPool{subnetPool("older", "10.6.0.0/24", 0)},
			map[string]string{"Ready": "False/Overlapping", "Overlapping": "True/SharedAddresses"}},
		{"a younger pool has some of the addresses", subnetPool("blue", "10.6.0.0/29", 1), nil,
			[]v1alpha1.IPPool{subnetPool("younger", "10.6.0.0/24", 2)},
			map[string]string{"Ready": "True/Ready", "Overlapping": "True/SharedAddresses"}},
		{"of the same age, the name decides", subnetPool("blue", "10.6.0.0/29", 1), nil,
			[]v1alpha1.IPPool{subnetPool("amber", "10.6.0.0/24", 1)},
			map[string]string{"Ready": "False/Overlapping"}},
		{"the same addresses in another network", subnetPool("blue", "10.6.0.0/29", 1), nil,
			[]v1alpha1.IPPool{elsewhere},
			map[string]string{"Ready": "True/Ready", "Overlapping": "False/None"}},
		{"other addresses of the same subnet", subnetPool("blue", "10.6.0.0/29", 1), nil,
			[]v1alpha1.IPPool{apart},
			map[string]string{"Ready": "True/Ready", "Overlapping": "False/None"}},
		{"itself", subnetPool("blue", "10.6.0.0/29", 1), nil,
			[]v1alpha1.IPPool{subnetPool("blue", "10.6.0.0/29", 1)},
			map[string]string{"Ready": "True/Ready", "Overlapping": "False/None"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			status, _ := Status(Facts{Pool: &row.pool, Leases: row.leases, Others: row.others, Now: noon()})
			for kind, want := range row.want {
				c := meta.FindStatusCondition(status.Conditions, kind)
				if c == nil || fmt.Sprintf("%s/%s", c.Status, c.Reason) != want {
					t.Errorf("%s is %+v, want %s", kind, c, want)
				}
			}
		})
	}
}

func TestAnUnchangedWorldHasAnUnchangedStatus(t *testing.T) {
	pool := subnetPool("blue", "10.6.0.0/24", 0)
	leases := []v1alpha1.IPLease{lease("10.6.0.2", v1alpha1.StateBound)}
	pool.Status, _ = Status(Facts{Pool: &pool, Leases: leases, Now: noon()})
	again, _ := Status(Facts{Pool: &pool, Leases: leases, Now: metav1.NewTime(noon().Add(time.Hour))})
	if fmt.Sprint(pool.Status) != fmt.Sprint(again) {
		t.Errorf("an hour later\n%+v, was\n%+v", again, pool.Status)
	}
}

func TestScarcity(t *testing.T) {
	warm := lease("10.6.0.1", v1alpha1.StateWarm)
	bound := lease("10.6.0.2", v1alpha1.StateBound)
	for _, row := range []struct {
		name   string
		warm   *int64
		agents int
		leases []v1alpha1.IPLease
		want   bool
	}{
		// A /29 has 6 addresses.
		{"without warm leases nothing is scarce", nil, 100, nil, false},
		{"enough for every agent's warm leases", ptr.To[int64](2), 3, nil, false},
		{"not enough for every agent's warm leases", ptr.To[int64](2), 4, nil, true},
		{"what is bound is not left", ptr.To[int64](2), 3, []v1alpha1.IPLease{bound}, true},
		{"what is warm is left, or giving it up would bring it back", ptr.To[int64](2), 3, []v1alpha1.IPLease{warm}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			pool := subnetPool("blue", "10.6.0.0/29", 0)
			pool.Spec.Warm = row.warm
			status, _ := Status(Facts{Pool: &pool, Leases: row.leases, Agents: row.agents, Now: noon()})
			if status.Scarce != row.want {
				t.Errorf("scarce %v, want %v", status.Scarce, row.want)
			}
		})
	}
}

func TestPublicationsArePaced(t *testing.T) {
	for _, row := range []struct {
		name          string
		bytes, agents int
		want          time.Duration
	}{
		{"a small pool once a second", 44, 10, time.Second},
		{"without agents once a second", 1 << 20, 0, time.Second},
		{"a /16 for 1000 agents", 10923, 1000, 10417 * time.Millisecond},
		{"1 MB to one agent", 1 << 20, 1, time.Second},
	} {
		if got := interval(row.bytes, row.agents).Round(time.Millisecond); got != row.want {
			t.Errorf("%s: every %s, want %s", row.name, got, row.want)
		}
	}
	p := newPace()
	p.published("blue", 44, 10, noon().Time)
	if got := p.wait("blue", noon().Add(400*time.Millisecond)); got != 600*time.Millisecond {
		t.Errorf("waits %s, want 600ms", got)
	}
	if got := p.wait("green", noon().Time); got != 0 {
		t.Errorf("another pool waits %s", got)
	}
}

func TestFreedAddressesCoolDown(t *testing.T) {
	first, second := netip.MustParseAddr("10.6.0.9"), netip.MustParseAddr("10.6.0.4")
	c := newCooling()
	c.add("blue", first, noon().Time)
	c.add("blue", second, noon().Add(10*time.Second))

	addrs, next := c.of("blue", 30*time.Second, noon().Add(20*time.Second))
	if !slices.Equal(addrs, []netip.Addr{second, first}) || !next.Equal(noon().Add(30*time.Second)) {
		t.Errorf("cooling %v until %v", addrs, next)
	}
	addrs, _ = c.of("blue", 30*time.Second, noon().Add(30*time.Second))
	if !slices.Equal(addrs, []netip.Addr{second}) {
		t.Errorf("after 30 s: %v", addrs)
	}
	if addrs, next = c.of("green", 30*time.Second, noon().Time); len(addrs) != 0 || !next.IsZero() {
		t.Errorf("another pool: %v until %v", addrs, next)
	}
}
