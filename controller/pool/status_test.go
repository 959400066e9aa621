// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/poolset"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
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
		Cooling: []netip.Addr{netip.MustParseAddr("10.6.0.77")},
		Agents:  2,
		Served:  1,
		Shares:  3,
		Now:     noon(),
	})
	status := r.Status

	want := v1alpha1.IPPoolStatus{
		ObservedGeneration: 3, Total: 253, Used: 6, Free: 248, Bound: 2, Warm: 1, Quarantined: 1, Retained: 2, Stock: 2, Agents: 2, Served: 1, Shares: 3,
	}
	got := status
	got.InUse, got.Conditions = "", nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("status\n%+v, want\n%+v", got, want)
	}
	if r.Quarantined[v1alpha1.ReasonPodGone] != 1 {
		t.Errorf("quarantined by reason: %v", r.Quarantined)
	}
	if r.Free != 249 || r.Outside != 1 {
		t.Errorf("%d free, %d outside, want all but the 4 that are bound, quarantined or retained, and 10.9.9.9", r.Free, r.Outside)
	}
	bitmap, err := poolset.DecodeBitmap(status.InUse)
	check.OK(t, err)
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

func TestAnUnchangedWorldHasAnUnchangedStatus(t *testing.T) {
	pool := subnetPool("blue", "10.6.0.0/24", 0)
	leases := []v1alpha1.IPLease{lease("10.6.0.2", v1alpha1.StateBound)}
	pool.Status = NewReport(Facts{Pool: &pool, Leases: leases, Now: noon()}).Status
	again := NewReport(Facts{Pool: &pool, Leases: leases, Now: metav1.NewTime(noon().Add(time.Hour))}).Status
	if fmt.Sprint(pool.Status) != fmt.Sprint(again) {
		t.Errorf("an hour later\n%+v, was\n%+v", again, pool.Status)
	}
}
