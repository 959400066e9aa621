// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

const address = "10.1.0.5"

func poolWith(name, subnet string, ips ...string) v1alpha1.IPPool {
	return v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IPPoolSpec{Subnet: subnet, IPs: ips}}
}

// held is the lease that the controller made for the record.
func held(changes ...func(*v1alpha1.IPLease)) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: address, Labels: map[string]string{v1alpha1.LabelMove: "m"}},
		Spec: v1alpha1.IPLeaseSpec{
			Address: address, State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonMovingIn, Message: "why",
			Holder: &v1alpha1.Holder{Namespace: "default", Pod: "web", PodUID: "u", ContainerID: "adopted-u"},
		},
	}
	for _, change := range changes {
		change(l)
	}
	return l
}

func TestTheStateOfAnAddress(t *testing.T) {
	state := func(s v1alpha1.LeaseState) func(*v1alpha1.IPLease) {
		return func(l *v1alpha1.IPLease) { l.Spec.State, l.Spec.Reason = s, "" }
	}
	of := func(uid string) func(*v1alpha1.IPLease) {
		return func(l *v1alpha1.IPLease) { l.Spec.Holder.PodUID = uid }
	}
	later := func(l *v1alpha1.IPLease) { l.Spec.Holder.ContainerID = "c2" }
	unlabelled := func(l *v1alpha1.IPLease) { l.Labels = nil }
	was := func(s v1alpha1.MoveState) []v1alpha1.MoveAddress {
		return []v1alpha1.MoveAddress{{Address: address, PodUID: "u", State: s}}
	}
	for name, c := range map[string]struct {
		step  v1alpha1.MoveStep
		lease *v1alpha1.IPLease
		was   []v1alpha1.MoveAddress
		want  v1alpha1.MoveState
		says  string
		holds int
	}{
		"the old IPAM is not frozen yet":            {step: v1alpha1.MoveFreeze},
		"it is frozen":                              {step: v1alpha1.MoveAdopt, want: v1alpha1.MoveHeld, says: "the agent of node n1 has not adopted the pod yet (record r)", holds: 1},
		"the pool is open":                          {step: v1alpha1.MoveOpen, want: v1alpha1.MoveHeld, says: "n1", holds: 1},
		"the move is undone":                        {step: v1alpha1.MoveBack},
		"it is held":                                {lease: held(), want: v1alpha1.MoveHeld, says: "why"},
		"it is held on, after a failed take-over":   {lease: held(func(l *v1alpha1.IPLease) { l.Spec.Reason = v1alpha1.ReasonUnverified }), want: v1alpha1.MoveHeld, says: "Unverified: why"},
		"another host answers":                      {lease: held(func(l *v1alpha1.IPLease) { l.Spec.Conflict = &v1alpha1.Conflict{MAC: "02:00:00:00:00:09"} }), want: v1alpha1.MoveConflict, says: "02:00:00:00:00:09"},
		"its pod is adopted":                        {lease: held(state(v1alpha1.StateBound)), want: v1alpha1.MoveAdopted},
		"its pod has had it before the move":        {lease: held(state(v1alpha1.StateBound), unlabelled), want: v1alpha1.MoveAdopted},
		"its pod has another sandbox":               {lease: held(state(v1alpha1.StateBound), later), want: v1alpha1.MoveEnded, says: "a later sandbox"},
		"another pod has it":                        {lease: held(state(v1alpha1.StateBound), unlabelled, of("v")), want: v1alpha1.MoveConflict, says: "pod default/web"},
		"a hold of another move":                    {lease: held(func(l *v1alpha1.IPLease) { l.Labels[v1alpha1.LabelMove] = "n" }), want: v1alpha1.MoveConflict, says: "MovingIn"},
		"a node keeps it ready":                     {lease: held(state(v1alpha1.StateWarm), unlabelled, func(l *v1alpha1.IPLease) { l.Spec.Holder = nil }), want: v1alpha1.MoveConflict, says: "Warm"},
		"its pod has ended, and its name keeps it":  {lease: held(state(v1alpha1.StateRetained)), want: v1alpha1.MoveEnded, says: "Retained"},
		"the next pod of the name has it":           {lease: held(state(v1alpha1.StateBound), of("v")), want: v1alpha1.MoveEnded, says: "Bound"},
		"its hold has ended":                        {was: was(v1alpha1.MoveHeld), want: v1alpha1.MoveEnded},
		"its adopted pod has ended":                 {was: was(v1alpha1.MoveAdopted), want: v1alpha1.MoveEnded},
		"it has ended long ago":                     {was: was(v1alpha1.MoveEnded), want: v1alpha1.MoveEnded},
		"its adopted pod has ended, another has it": {lease: held(state(v1alpha1.StateBound), unlabelled, of("v")), was: was(v1alpha1.MoveAdopted), want: v1alpha1.MoveEnded, says: "given anew"},
		"it has ended, and a node keeps it ready":   {lease: held(state(v1alpha1.StateWarm), unlabelled, func(l *v1alpha1.IPLease) { l.Spec.Holder = nil }), was: was(v1alpha1.MoveEnded), want: v1alpha1.MoveEnded, says: "given anew"},
		"the other IPAM gave it to another pod":     {step: v1alpha1.MoveOpen, was: []v1alpha1.MoveAddress{{Address: address, PodUID: "v", State: v1alpha1.MoveEnded}}, want: v1alpha1.MoveHeld, holds: 1},
		"a lease in its way has ended":              {was: was(v1alpha1.MoveConflict), want: v1alpha1.MoveHeld, holds: 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: v1alpha1.MoveSpec{
				Step:    v1alpha1.MoveAdopt,
				Records: []v1alpha1.MoveRecord{{Address: address, Node: "n1", Namespace: "default", Pod: "web", PodUID: "u", Record: "r"}},
			}, Status: v1alpha1.MoveStatus{Addresses: c.was}}
			if c.step != "" {
				m.Spec.Step = c.step
			}
			status, writes := Next(Facts{
				Move: m, Pools: []v1alpha1.IPPool{poolWith("lan", "10.1.0.0/24")},
				Lease: func(name string) *v1alpha1.IPLease { check.Equal(t, name, address, "looks for"); return c.lease },
			})
			check.Equal(t, len(writes.Holds), c.holds, "holds")
			if c.want == "" {
				check.Equal(t, len(status.Addresses), 0, "addresses")
				return
			}
			check.Equal(t, len(status.Addresses), 1, "addresses")
			check.Equal(t, status.Addresses[0].State, c.want, "state")
			check.That(t, strings.Contains(status.Addresses[0].Reason, c.says), "reason %q", status.Addresses[0].Reason)
			counts := map[v1alpha1.MoveState]int64{v1alpha1.MoveHeld: status.Held, v1alpha1.MoveAdopted: status.Adopted, v1alpha1.MoveConflict: status.Conflicts, v1alpha1.MoveEnded: status.Ended}
			check.Equal(t, counts[c.want], 1, "count of %s", c.want)
		})
	}
}

func TestAddressesWithoutAPlaceOrWithTwo(t *testing.T) {
	m := &v1alpha1.Move{Spec: v1alpha1.MoveSpec{Step: v1alpha1.MoveAdopt, Records: []v1alpha1.MoveRecord{
		{Address: address, Pod: "a", Namespace: "default", PodUID: "u"}, {Address: address, Pod: "b", Namespace: "default", PodUID: "v"},
		{Address: "10.9.0.1"}, {Address: "10.1.0.6"}, {Address: "10.1.0.7"},
	}}}
	status, writes := Next(Facts{
		Move: m, Pools: []v1alpha1.IPPool{poolWith("low", "10.1.0.0/24", "10.1.0.6"), poolWith("high", "10.1.0.0/24", "10.1.0.7")},
		Lease: func(string) *v1alpha1.IPLease { return nil },
	})
	var got []string
	for _, a := range status.Addresses {
		got = append(got, a.Address+" "+string(a.State)+" "+a.Reason)
	}
	check.List(t, got, []string{
		"10.1.0.5 Conflict 2 records name it, one of them of pod default/a", "10.9.0.1 Conflict no pool of the move has it",
		"10.1.0.6 Held no pod is known (record of no pod)", "10.1.0.7 Held no pod is known (record of no pod)",
	}, "addresses")
	holds := writes.Holds
	check.That(t, len(holds) == 2 && holds[0].Spec.Pool == "low" && holds[1].Spec.Pool == "high", "holds %v", holds)
}

// A move that goes back ends its holds and gives its pods back, but not while a pool could give the addresses away.
func TestAMoveGoesBack(t *testing.T) {
	is := func(s v1alpha1.LeaseState) func(*v1alpha1.IPLease) {
		return func(l *v1alpha1.IPLease) { l.Spec.State, l.Spec.Reason = s, "" }
	}
	asked := func(generation string) func(*v1alpha1.IPLease) {
		return func(l *v1alpha1.IPLease) { l.Annotations = map[string]string{v1alpha1.AnnotationMoveBack: generation} }
	}
	bound, ours := is(v1alpha1.StateBound), func(l *v1alpha1.IPLease) { l.Labels = nil }
	for name, c := range map[string]struct {
		lease       *v1alpha1.IPLease
		isOpen      bool
		step        v1alpha1.MoveStep
		hold        string
		back, ended int
	}{
		"a hold":                          {lease: held(), ended: 1},
		"a hold, and the pool is open":    {lease: held(), isOpen: true},
		"a hold that is kept":             {lease: held(), step: v1alpha1.MoveOpen},
		"a hold of another move":          {lease: held(func(l *v1alpha1.IPLease) { l.Labels[v1alpha1.LabelMove] = "n" })},
		"an adopted pod":                  {lease: held(bound), back: 1},
		"a pod that was never adopted":    {lease: held(bound, ours), back: 1},
		"a pod, and the pool is open":     {lease: held(bound), isOpen: true},
		"a pod of a move that goes on":    {lease: held(bound), step: v1alpha1.MoveAdopt},
		"a pod that was asked for":        {lease: held(bound, asked("7"))},
		"a pod that was asked for before": {lease: held(bound, asked("6")), back: 1},
		"another pod":                     {lease: held(bound, func(l *v1alpha1.IPLease) { l.Spec.Holder.PodUID = "v" })},
	} {
		t.Run(name, func(t *testing.T) {
			pool := poolWith("lan", "10.1.0.0/24")
			pool.Spec.Disable = ptr.To(!c.isOpen)
			m := &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "m", Generation: 7}, Spec: v1alpha1.MoveSpec{
				Step: cmp.Or(c.step, v1alpha1.MoveBack), Records: []v1alpha1.MoveRecord{{Address: address, Namespace: "default", Pod: "web", PodUID: "u", Hold: c.hold}},
			}}
			_, w := Next(Facts{Move: m, Pools: []v1alpha1.IPPool{pool}, Lease: func(string) *v1alpha1.IPLease { return c.lease }})
			check.Equal(t, len(w.Back), c.back, "given back")
			check.Equal(t, len(w.Ended), c.ended, "ended")
			for _, l := range w.Back {
				check.That(t, l.Labels[v1alpha1.LabelMove] == "m" && l.Annotations[v1alpha1.AnnotationMoveBack] == "7", "%+v", l.ObjectMeta)
				check.That(t, c.lease.Annotations[v1alpha1.AnnotationMoveBack] != "7", "the cached lease has changed")
			}
		})
	}
}

func TestAHold(t *testing.T) {
	now := time.Unix(1000, 0)
	pool := poolWith("lan", "10.1.0.0/24")
	m := &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	l := hold(m, &v1alpha1.MoveRecord{
		Address: address, Node: "n1", Namespace: "default", Pod: "web", PodUID: "u", Interface: "net1", ContainerID: "c", MAC: "02:00:00:00:00:01", Record: "r", Hold: "its node is away",
	}, &pool, address, now)
	check.That(t, l.IsHold() && l.Spec.NodeName == "n1" && l.Labels[v1alpha1.LabelMove] == "m", "lease %+v", l)
	check.Equal(t, *l.Spec.Holder, v1alpha1.Holder{Namespace: "default", Pod: "web", PodUID: "u", Interface: "net1", ContainerID: "c", MAC: "02:00:00:00:00:01"}, "holder")
	check.That(t, l.LastUnguarded() && l.Spec.Previous.Node == "n1" && l.Spec.Previous.MAC == "02:00:00:00:00:01", "previous %+v", l.Spec.Previous)
	check.Equal(t, l.Spec.Message, "its node is away (record r)", "message")
	check.Equal(t, l.Annotations[v1alpha1.AnnotationMoveHold], "its node is away", "the agent does not adopt it, since")

	without := hold(m, &v1alpha1.MoveRecord{Address: address, Node: "n1", Namespace: "default", Pod: "web"}, &pool, address, now)
	check.That(t, without.Spec.Holder == nil && without.Spec.Previous == nil && !without.IsHold(), "without a pod: %+v", without.Spec)
}
