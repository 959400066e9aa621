// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/poolset"
	"github.com/fenceline/fenceline/test/check"
)

func set(t testing.TB, entries ...string) poolset.Set {
	t.Helper()
	return check.Value(poolset.Parse(entries))(t)
}

func TestMatch(t *testing.T) {
	sets := []poolset.Set{set(t, "10.1.0.0/30"), set(t, "10.1.0.2-10.1.0.9", "fd00::1"), set(t, "10.9.0.0/16")}
	union := set(t, "10.1.0.0-10.1.0.9", "fd00::1", "10.9.0.0/16")
	var leases []v1alpha1.IPLease
	for i, a := range []string{"10.1.0.1", "10.1.0.2", "10.1.0.9", "10.1.0.10", "fd00::1", "fd00::2", ""} {
		leases = append(leases, bound(a, i))
	}
	want := [][]string{{"10.1.0.1", "10.1.0.2"}, {"10.1.0.2", "10.1.0.9", "fd00::1"}, nil}
	for i, found := range match(sets, union, leases) {
		var got []string
		for _, l := range found {
			got = append(got, l.Spec.Address)
		}
		check.List(t, got, want[i], "reservation %d:", i)
	}
}

func TestLeasesThatWake(t *testing.T) {
	r := &Reconciler{}
	wakes := r.leaseOfReserved()
	reserved, other := bound("10.1.0.1", 0), bound("10.2.0.1", 0)
	check.That(t, !wakes.Create(event.CreateEvent{Object: &reserved}), "before the first pass, which looks at all leases, one wakes")
	watched := set(t, "10.1.0.0/24")
	r.watched.Store(&watched)

	moved := bound("10.1.0.1", 1)
	said := reserved
	said.Spec.Message = "another"
	for _, row := range []struct {
		name      string
		got, want bool
	}{
		{"a lease of a reserved address comes", wakes.Create(event.CreateEvent{Object: &reserved}), true},
		{"it ends", wakes.Delete(event.DeleteEvent{Object: &reserved}), true},
		{"another pod has it", wakes.Update(event.UpdateEvent{ObjectOld: &reserved, ObjectNew: &moved}), true},
		{"what nobody is told of changes", wakes.Update(event.UpdateEvent{ObjectOld: &reserved, ObjectNew: &said}), false},
		{"a lease of another address comes", wakes.Create(event.CreateEvent{Object: &other}), false},
		{"and ends", wakes.Delete(event.DeleteEvent{Object: &other}), false},
	} {
		check.Equal(t, row.got, row.want, "%s: wakes", row.name)
	}
}

// BenchmarkPass is one pass over 50 000 leases with 100 reservations of ten
// ranges each, which hold every tenth lease.
func BenchmarkPass(b *testing.B) {
	leases := make([]v1alpha1.IPLease, 0, 50000)
	for i := range cap(leases) {
		leases = append(leases, bound(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), i))
	}
	var all []v1alpha1.ReservedIP
	for i := range 100 {
		var ips []string
		for j := range 10 {
			at := (i*10 + j) * 50
			ips = append(ips, fmt.Sprintf("10.0.%d.%d-10.0.%d.%d", at>>8&255, at&255, (at+4)>>8&255, (at+4)&255))
		}
		all = append(all, *reservation(ips...))
	}
	for b.Loop() {
		sets := make([]poolset.Set, len(all))
		for i := range all {
			sets[i], _ = poolset.ReservedBy(&all[i])
		}
		match(sets, poolset.ReservedSet(all), leases)
	}
}
