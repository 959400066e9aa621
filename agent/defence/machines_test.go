// SPDX-License-Identifier: Apache-2.0

package defence

import (
	"net"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/agent/segment"
	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

const (
	theMachine = "02:00:00:00:00:0a"
	stranger   = "02:00:00:00:00:0b"
)

// The pod of node n1 is in pool v4, on parent 7. Each row is a look a while after the one before.
func TestAStrangerOnTheAddressOfAMachineIsOnRecord(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(100_000, 0))
	machine := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "machine"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{"10.0.0.9", "10.9.0.9"}, For: &v1alpha1.ReservedFor{MAC: theMachine},
	}}
	machine.Generation, machine.Status.ObservedGeneration = 1, 1
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24"}}
	pool.Spec.ConflictDetection = &v1alpha1.ConflictDetection{IgnoreMACs: []string{"02:00:00:00:00:0c"}}
	d := newDefence(t, 2, machine, pool)
	heard, ago, counted := "", time.Duration(0), 0
	m := &Machines{MachineOptions{Options: d.Options, Client: d.Cache.(client.Client)}}
	m.Clock = clock
	m.Conflict = func(string, segment.Source) { counted++ }
	m.Heard = func(parent int, addr netip.Addr) (net.HardwareAddr, time.Duration, bool, error) {
		check.That(t, parent == 7 && addr.String() == "10.0.0.9", "it asks for %s on %d", addr, parent)
		mac, _ := net.ParseMAC(heard)
		return mac, ago, heard != "", nil
	}
	for _, row := range []struct {
		name        string
		after       time.Duration
		heard       string
		ago         time.Duration
		inUse       int64
		want        string
		wantCounted int
	}{
		{"nobody", 0, "", 0, 0, "", 0},
		{"the machine", time.Minute, theMachine, 0, 0, "", 0},
		{"a stranger before the look before", time.Minute, stranger, time.Minute, 0, "", 0},
		{"a proxy", time.Minute, "02:00:00:00:00:0c", 0, 0, "", 0},
		{"a pod that holds the address", time.Minute, stranger, 0, 1, "", 0},
		{"a stranger", time.Minute, stranger, time.Second, 0, stranger, 1},
		{"it goes on", time.Minute, stranger, time.Second, 0, stranger, 1},
		{"both speak", time.Minute, theMachine, time.Second, 0, stranger, 1},
		{"another stranger soon", time.Minute, "02:00:00:00:00:0d", time.Second, 0, stranger, 1},
		{"the machine, long after", recordMost, theMachine, time.Second, 0, theMachine, 1},
		{"the stranger again", time.Minute, stranger, time.Second, 0, stranger, 2},
		{"another one, long after", recordMost, "02:00:00:00:00:0d", time.Second, 0, "02:00:00:00:00:0d", 3},
	} {
		clock.Step(row.after)
		heard, ago = row.heard, row.ago
		r := &v1alpha1.ReservedIP{}
		check.OK(t, d.Cache.Get(t.Context(), client.ObjectKeyFromObject(machine), r))
		r.Status.InUse = row.inUse
		check.OK(t, m.Client.Status().Update(t.Context(), r))
		check.OK(t, m.pass(t.Context()))
		check.OK(t, d.Cache.Get(t.Context(), client.ObjectKeyFromObject(machine), r))
		is := speakerOf(r, netip.MustParseAddr("10.0.0.9"))
		check.That(t, is.MAC == row.want && counted == row.wantCounted && len(r.Status.Speakers) <= 1 && (is.MAC == "" || is.Node == "n1"),
			"%s: the record is %+v, and %d are counted; want %q, %d", row.name, r.Status.Speakers, counted, row.want, row.wantCounted)
	}
}

// A pod has had the address until a moment ago, so it may have been the one that was heard.
func TestAPodThatHadTheAddressOfAMachineIsNoStranger(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(100_000, 0))
	machine := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: "machine"}, Spec: v1alpha1.ReservedIPSpec{
		IPs: []string{"10.0.0.9"}, For: &v1alpha1.ReservedFor{MAC: theMachine},
	}}
	machine.Generation, machine.Status.ObservedGeneration = 1, 1
	machine.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionInUse, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(clock.Now().Add(-20 * time.Second))}}
	d := newDefence(t, 1, machine, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "v4"}, Spec: v1alpha1.IPPoolSpec{Subnet: "10.0.0.0/24"}})
	ago := 21 * time.Second
	m := &Machines{MachineOptions{Options: d.Options, Client: d.Cache.(client.Client), Heard: func(int, netip.Addr) (net.HardwareAddr, time.Duration, bool, error) {
		mac, _ := net.ParseMAC(stranger)
		return mac, ago, true, nil
	}}}
	m.Clock = clock
	for _, want := range []int{0, 1} {
		check.OK(t, m.pass(t.Context()))
		r := &v1alpha1.ReservedIP{}
		check.OK(t, d.Cache.Get(t.Context(), client.ObjectKeyFromObject(machine), r))
		check.Equal(t, len(r.Status.Speakers), want, "heard %s ago, records:", ago)
		ago = 19 * time.Second
	}
}
