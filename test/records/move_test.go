// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// move is a move of whereabouts with one record.
func move(name string, changes ...func(*v1alpha1.MoveSpec)) *v1alpha1.Move {
	m := &v1alpha1.Move{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MoveSpec{
		From: v1alpha1.MoveWhereabouts, Network: "default/lan", Pools: []string{"lan"}, Holder: "ann@desk", Step: v1alpha1.MoveFreeze,
		Records: []v1alpha1.MoveRecord{{Address: "10.1.0.1", Node: "n1", Namespace: "default", Pod: "web-0", PodUID: "u", Interface: "net1"}},
	}}
	for _, change := range changes {
		change(&m.Spec)
	}
	return m
}

func (e *env) testMoves(t *testing.T) {
	record := func(change func(*v1alpha1.MoveRecord)) func(*v1alpha1.MoveSpec) {
		return func(s *v1alpha1.MoveSpec) { change(&s.Records[0]) }
	}
	for name, c := range map[string]struct {
		move *v1alpha1.Move
		want string
	}{
		"one record":                {move("m"), ""},
		"a record without a pod":    {move("m", record(func(r *v1alpha1.MoveRecord) { *r = v1alpha1.MoveRecord{Address: "fd00:1::1"} })), ""},
		"no record":                 {move("m", func(s *v1alpha1.MoveSpec) { s.Records = nil }), ""},
		"a long name":               {move(strings.Repeat("m", 64)), "longer than 63 characters"},
		"an unknown IPAM":           {move("m", func(s *v1alpha1.MoveSpec) { s.From = "dhcp" }), `spec.from: Unsupported value: "dhcp"`},
		"an unknown step":           {move("m", func(s *v1alpha1.MoveSpec) { s.Step = "Run" }), `spec.step: Unsupported value: "Run"`},
		"no pool":                   {move("m", func(s *v1alpha1.MoveSpec) { s.Pools = nil }), "spec.pools"},
		"an address with a length":  {move("m", record(func(r *v1alpha1.MoveRecord) { r.Address = "10.1.0.1/24" })), "10.1.0.1/24 is not an IP address"},
		"an address written out":    {move("m", record(func(r *v1alpha1.MoveRecord) { r.Address = "fd00:0::1" })), "fd00:0::1 is not an IP address in canonical form"},
		"a container ID with slash": {move("m", record(func(r *v1alpha1.MoveRecord) { r.ContainerID = "a/b" })), "containerID"},
		"too many records": {move("m", func(s *v1alpha1.MoveSpec) {
			s.Records = make([]v1alpha1.MoveRecord, v1alpha1.MaxMoveRecords+1)
			for i := range s.Records {
				s.Records[i].Address = fmt.Sprintf("10.2.%d.%d", i/256, i%256)
			}
		}), "Too many"},
	} {
		t.Run(name, func(t *testing.T) {
			err := e.admin.Create(t.Context(), c.move, client.DryRunAll)
			if c.want == "" {
				check.Is(t, err, nil, "got")
				return
			}
			e.refused(t, err, c.want)
		})
	}
	t.Run("the network stays", func(t *testing.T) {
		m := move("m")
		e.create(t, m)
		m.Spec.Step = v1alpha1.MoveAdopt
		check.OK(t, e.admin.Update(t.Context(), m))
		m.Spec.Network = "default/wan"
		e.refused(t, e.admin.Update(t.Context(), m), "network is immutable")
		m.Spec.Network, m.Spec.Out = "default/lan", true
		e.refused(t, e.admin.Update(t.Context(), m), "out is immutable")
	})
}

// testLargestMove: etcd takes the longest object that the rules allow.
func (e *env) testLargestMove(t *testing.T) {
	long := func(n int) string { return strings.Repeat("n", n) }
	m := move(long(63), func(s *v1alpha1.MoveSpec) {
		s.Records = nil
		for i := range v1alpha1.MaxMoveRecords {
			s.Records = append(s.Records, v1alpha1.MoveRecord{
				Address: fmt.Sprintf("2001:db8:1111:1111:1111:1111:1111:%x", 0x1000+i), Node: long(253), Namespace: long(63), Pod: long(253), PodUID: long(63),
				Interface: long(15), ContainerID: long(128), MAC: "02:00:00:00:00:01", Record: long(128), Hold: long(160),
			})
		}
	})
	e.create(t, m)
	for _, r := range m.Spec.Records {
		m.Status.Addresses = append(m.Status.Addresses, v1alpha1.MoveAddress{Address: r.Address, State: v1alpha1.MoveConflict, Reason: long(200)})
	}
	check.OK(t, e.controller.Status().Update(t.Context(), m))
	check.Equal(t, len(m.Status.Addresses), v1alpha1.MaxMoveRecords, "addresses")
}

// testHolds: the controller creates leases only to hold the addresses of a move, and the agent of the pod's node
// binds them for this pod.
func (e *env) testHolds(t *testing.T) {
	held := func(changes ...func(*v1alpha1.IPLease)) *v1alpha1.IPLease {
		return bound("", "10.1.0.1", append([]func(*v1alpha1.IPLease){func(l *v1alpha1.IPLease) {
			l.Labels = map[string]string{v1alpha1.LabelMove: "m"}
			s := &l.Spec
			s.State, s.Reason, s.Session = v1alpha1.StateQuarantined, v1alpha1.ReasonMovingIn, ""
			s.Holder.ContainerID, s.Holder.Guarded, s.Holder.OwnerKind = "", false, "ReplicaSet"
			s.Previous = &v1alpha1.PreviousHolder{Node: "n1", PodUID: "u", Reason: v1alpha1.ReasonMovingIn}
		}}, changes...)...)
	}
	const only = "the controller creates only leases that hold an address for a move"
	binds := spec(func(s *v1alpha1.IPLeaseSpec) {
		s.State, s.Reason, s.Session, s.Holder.ContainerID, s.Holder.Guarded = v1alpha1.StateBound, "", "node-uid/boot-id", "adopted-u", true
	})
	of := func(pod, uid string) func(*v1alpha1.IPLease) {
		return spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.Pod, s.Holder.PodUID = pod, uid })
	}
	for name, c := range map[string]struct {
		who client.Client
		attempt
	}{
		"the controller holds an address":          {e.controller, attempt{create, held(), nil, ""}},
		"also of a record without a pod":           {e.controller, attempt{create, held(withoutHolder, spec(func(s *v1alpha1.IPLeaseSpec) { s.Previous = nil })), nil, ""}},
		"it binds no address":                      {e.controller, attempt{create, held(in(v1alpha1.StateBound)), nil, only}},
		"it holds none for another reason":         {e.controller, attempt{create, held(because(v1alpha1.ReasonPodGone)), nil, only}},
		"it holds none without a move":             {e.controller, attempt{create, held(func(l *v1alpha1.IPLease) { l.Labels = nil }), nil, only}},
		"it claims no guard":                       {e.controller, attempt{create, held(spec(func(s *v1alpha1.IPLeaseSpec) { s.Previous.Guarded = true })), nil, "no agent has guarded the pod"}},
		"a person holds none":                      {e.person(t, "holds-none"), attempt{create, held(), nil, "annotate it with fenceline.io/force-delete"}},
		"an agent holds none":                      {e.agent(t, "n1"), attempt{create, held(), nil, "an agent creates leases with spec.state Bound or Warm"}},
		"the agent of the node binds it":           {e.agent(t, "n1"), attempt{update, held(), binds, ""}},
		"an agent of another node does not":        {e.agent(t, "n2"), attempt{update, held(), all(binds, on("n2")), "the address is kept for default/web-0"}},
		"and not for another pod":                  {e.agent(t, "n1"), attempt{update, held(), all(binds, of("other", "v")), "the address is kept for default/web-0"}},
		"and not for a pod of the name":            {e.agent(t, "n1"), attempt{update, held(), all(binds, of("web-0", "v")), "the address is kept for default/web-0"}},
		"and not with the pod's end already known": {e.agent(t, "n1"), attempt{update, held(), all(binds, spec(func(s *v1alpha1.IPLeaseSpec) { s.Previous = nil })), "spec.previous is not proven fenced"}},
		"the agent says why it does not bind it":   {e.agent(t, "n1"), attempt{update, held(), spec(func(s *v1alpha1.IPLeaseSpec) { s.Message = "no interface has it" }), ""}},
		"the agent frees it":                       {e.agent(t, "n1"), attempt{remove, held(), nil, ""}},
	} {
		t.Run(name, func(t *testing.T) { e.try(t, c.who, c.attempt) })
	}
}
