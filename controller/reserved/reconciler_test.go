// SPDX-License-Identifier: Apache-2.0

package reserved

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	sets := []poolset.Set{set(t, "10.1.0.0/30"), set(t, "10.1.0.2-10.1.0.9", "fd00::1"), set(t, "10.9.0.0/16"), set(t, "10.1.0.3-10.1.0.4", "10.1.0.9")}
	union := set(t, "10.1.0.0-10.1.0.9", "fd00::1", "10.9.0.0/16")
	var leases []v1alpha1.IPLease
	for i, a := range []string{"10.1.0.1", "10.1.0.2", "10.1.0.9", "10.1.0.10", "fd00::1", "fd00::2", ""} {
		leases = append(leases, bound(a, i))
	}
	want := [][]string{{"10.1.0.1", "10.1.0.2"}, {"10.1.0.2", "10.1.0.9", "fd00::1"}, nil, {"10.1.0.9"}}
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

func noon() metav1.Time { return metav1.NewTime(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)) }

func reservation(ips ...string) *v1alpha1.ReservedIP {
	return &v1alpha1.ReservedIP{
		ObjectMeta: metav1.ObjectMeta{Name: "routers", Generation: 3},
		Spec:       v1alpha1.ReservedIPSpec{IPs: ips},
	}
}

// bound is the lease of pod shop/web-<n>.
func bound(address string, n int) v1alpha1.IPLease {
	return v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: address},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, State: v1alpha1.StateBound,
			Holder: &v1alpha1.Holder{Namespace: "shop", Pod: fmt.Sprintf("web-%d", n)},
		},
	}
}

func pointers(leases []v1alpha1.IPLease) []*v1alpha1.IPLease {
	var all []*v1alpha1.IPLease
	for i := range leases {
		all = append(all, &leases[i])
	}
	return all
}

func TestStatus(t *testing.T) {
	var many []v1alpha1.IPLease
	for i := range 50 {
		many = append(many, bound(fmt.Sprintf("10.1.0.%d", i+1), i))
	}
	var unreadable []string
	for i := range 256 {
		unreadable = append(unreadable, fmt.Sprintf("fd00:0006:0000:0000:0000:0000:0001:%04x-fd00:0006:0000:0000:0000:0000:0000:%04x", i, i))
	}
	for _, row := range []struct {
		name         string
		reservation  *v1alpha1.ReservedIP
		leases       []v1alpha1.IPLease
		ready, inUse string // "status/reason: message"
	}{
		{"free addresses", reservation("10.1.0.0/24"), nil, "True/Ready: ", "False/None: "},
		{"addresses in use are named with their pods", reservation("10.1.0.0/24"), []v1alpha1.IPLease{bound("10.1.0.10", 1), bound("10.1.0.9", 0)},
			"True/Ready: ", "True/AddressInUse: reserved once they are free: 10.1.0.9 (pod shop/web-0), 10.1.0.10 (pod shop/web-1)"},
		{"many are counted", reservation("10.1.0.0/24"), many, "True/Ready: ", "True/AddressInUse: ... and 40 more"},
		{"an IPv6 range that ends before it starts", reservation("10.1.0.1", "fd00::20-fd00::10"), nil,
			"False/Invalid: the other entries are reserved: spec.ips[1]: range fd00::20-fd00::10 ends before it starts", "False/None: "},
		{"as many of them as there can be", reservation(unreadable...), nil, "False/Invalid: ... and 246 more", "False/None: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, invalid := poolset.ReservedBy(row.reservation)
			status := Status(Facts{Reservation: row.reservation, Invalid: invalid, Leases: pointers(row.leases), Now: noon()})
			check.That(t, status.InUse == int64(len(row.leases)) && status.ObservedGeneration == 3,
				"%d in use, generation %d", status.InUse, status.ObservedGeneration)
			for kind, want := range map[string]string{v1alpha1.ConditionReady: row.ready, v1alpha1.ConditionInUse: row.inUse} {
				c := meta.FindStatusCondition(status.Conditions, kind)
				check.Must(t, c != nil, "no condition %s", kind)
				start, end, cut := strings.Cut(want, "...")
				got := fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
				check.That(t, (got == want || (cut && strings.HasPrefix(got, start) && strings.HasSuffix(got, end))) && len(got) <= 32768,
					"%s is %s, want %s", kind, got, want)
			}
		})
	}
}

func TestAnUnchangedWorldHasAnUnchangedStatus(t *testing.T) {
	r := reservation("10.1.0.0/24")
	leases := []v1alpha1.IPLease{bound("10.1.0.1", 0)}
	r.Status = Status(Facts{Reservation: r, Leases: pointers(leases), Now: noon()})
	again := Status(Facts{Reservation: r, Leases: pointers(leases), Now: metav1.NewTime(noon().Add(time.Hour))})
	check.That(t, fmt.Sprint(r.Status) == fmt.Sprint(again), "an hour later\n%+v, was\n%+v", again, r.Status)
}

func TestConditionsOfAReservationForSomebody(t *testing.T) {
	r := reservation("10.1.0.1")
	r.Spec.For = &v1alpha1.ReservedFor{Namespace: "shop", Pod: "web-0"}
	for _, row := range []struct {
		name  string
		facts Facts
		want  string
	}{
		{"all is well", Facts{}, "Contested False None; SubjectMissing False None"},
		{"another reservation has the address", Facts{Other: "ReservedIP routers"}, "Contested True ReservedTwice nobody gets an address that ReservedIP routers has too: remove it from one of both; SubjectMissing False None"},
		{"the pod does not exist", Facts{Missing: "pod shop/web-0"}, "Contested False None; SubjectMissing True NotFound there is no pod shop/web-0; the addresses stay reserved"},
		{"it cannot be read", Facts{Unknown: errors.New("forbidden")}, "Contested False None; SubjectMissing Unknown Unreadable forbidden"},
	} {
		row.facts.Reservation = r
		status := Status(row.facts)
		var got []string
		for _, c := range status.Conditions[2:] {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Type, c.Status, c.Reason, c.Message)))
		}
		check.Equal(t, strings.Join(got, "; "), row.want, "%s:", row.name)
	}
	r.Status = Status(Facts{Reservation: r})
	r.Spec.For = nil
	check.Equal(t, len(Status(Facts{Reservation: r}).Conditions), 2, "conditions of a reservation that is for nobody again:")
}

func TestTheSpeakerOfAnAddressThatIsWrittenInFullStays(t *testing.T) {
	r := reservation("FD00:0::5")
	r.Spec.Virtual = &v1alpha1.ReservedVirtual{}
	r.Status.Speakers = []v1alpha1.Speaker{{Address: "fd00::5", Pod: "a"}, {Address: "fd00::6", Pod: "a"}}
	got := Status(Facts{Reservation: r}).Speakers
	check.That(t, len(got) == 1 && got[0].Address == "fd00::5", "%v", got)
	// The pod that spoke for the address is no host on that of a machine.
	r.Spec.Virtual, r.Spec.For = nil, &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:0a"}
	check.Equal(t, len(Status(Facts{Reservation: r}).Speakers), 0, "speakers of a machine's address that was virtual:")
}
