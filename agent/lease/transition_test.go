// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

var (
	before = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now    = before.Add(time.Minute)
	me     = Owner{Node: "n1", Session: "node-1/boot-1", Now: now}
)

type spec = v1alpha1.IPLeaseSpec

// with returns a copy of a spec with changes.
func with(s spec, changes ...func(*spec)) spec {
	s = *s.DeepCopy()
	for _, change := range changes {
		change(&s)
	}
	return s
}

func web0(container string) v1alpha1.Holder {
	return v1alpha1.Holder{
		Namespace: "shop", Pod: "web-0", PodUID: "uid-1", Interface: "eth0", ContainerID: container,
		MAC: "02:00:00:00:00:01", Guarded: true, OwnerKind: "StatefulSet", OwnerName: "web",
	}
}

func request(container string) Request {
	return Request{Pool: "a", Addr: netip.MustParseAddr("10.0.0.5"), Parent: "ens1", Holder: web0(container)}
}

// boundTo is a lease of container c0 in another's hands, unless changed.
func boundTo(o Owner) spec {
	return spec{
		Address: "10.0.0.5", Pool: "a", Parent: "ens1", State: v1alpha1.StateBound, Since: metav1.NewTime(o.Now),
		NodeName: o.Node, Session: o.Session, Holder: new(web0("c0")),
	}
}

// sandboxEnded is what a DEL makes of the lease of a pod that lives.
func sandboxEnded(s *spec) {
	plain(s)
	s.Reason, s.Message = v1alpha1.ReasonSandboxEnded, "the sandbox has ended; the next sandbox of the pod gets the address"
}

var (
	mine     = boundTo(Owner{"n1", "node-1/boot-1", before})
	other    = boundTo(Owner{"n2", "node-2/boot-7", before})
	rebooted = boundTo(Owner{"n1", "node-1/boot-0", before})
	kept     = with(mine, warm)
	// quarantined as the controller does it: nodeName is the verifier.
	quarantined = with(other, func(s *spec) {
		s.State, s.Reason, s.NodeName = v1alpha1.StateQuarantined, v1alpha1.ReasonPodGone, "n3"
		s.Previous = &v1alpha1.PreviousHolder{
			Node: "n2", Session: "node-2/boot-7", PodUID: "uid-1", MAC: "02:00:00:00:00:01", Guarded: true,
			Reason: v1alpha1.ReasonPodGone, Since: metav1.NewTime(before),
		}
	})
	retained = with(other, func(s *spec) { s.State, s.Holder.ContainerID = v1alpha1.StateRetained, "" })
	conflict = &v1alpha1.Conflict{MAC: "0a:00:00:00:00:09", Source: "probe", FirstSeen: metav1.NewTime(now), LastSeen: metav1.NewTime(now), Count: 1}
	// quarantinedElsewhere is what another node makes of an address that it created a lease for and found answered.
	quarantinedElsewhere = with(other, nobody, func(s *spec) {
		s.State, s.Reason, s.Conflict = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, conflict
	})
	stranger = Evidence{MAC: "0a:00:00:00:00:09", Source: "probe"}
)

func otherPod(s *spec)                               { s.Holder.Pod = "web-1" }
func otherNamespace(s *spec)                         { s.Holder.Namespace = "bank" }
func otherInterface(s *spec)                         { s.Holder.Interface = "net1" }
func otherUID(s *spec)                               { s.Holder.PodUID = "uid-0" }
func plain(s *spec)                                  { s.Holder.OwnerKind = "ReplicaSet" }
func nobody(s *spec)                                 { s.Holder = nil }
func noPrevious(s *spec)                             { s.Previous = nil }
func warm(s *spec)                                   { s.State, s.Holder = v1alpha1.StateWarm, nil }
func previous(p v1alpha1.PreviousHolder) func(*spec) { return func(s *spec) { s.Previous = &p } }

// boundAnew is what every take-over leads to.
var boundAnew = with(mine, func(s *spec) { s.Since, s.Holder.ContainerID = metav1.NewTime(now), "c1" })

func TestTransitions(t *testing.T) {
	takeOver, bind, throwOut := TakeOver(request("c1")), BindWarm(request("c1")), ThrowOut(stranger)
	plainRequest := request("c1")
	plainRequest.Holder.OwnerKind = "ReplicaSet"
	toPlain := TakeOver(plainRequest)
	answering := request("c1")
	answering.Holder.MAC = conflict.MAC
	retainedNow := with(mine, func(s *spec) {
		s.State, s.Since, s.Holder.ContainerID = v1alpha1.StateRetained, metav1.NewTime(now), ""
	})
	aside := func(s *spec) {
		s.State, s.Reason, s.Since = v1alpha1.StateQuarantined, v1alpha1.ReasonConflict, metav1.NewTime(now)
		s.Message, s.Conflict = "0a:00:00:00:00:09 uses the address too (probe)", conflict
	}
	for _, c := range []struct {
		rule string
		do   Transition
		from spec
		want spec
		err  error
	}{
		{"a Retained lease is taken over by its pod's name", takeOver, retained, boundAnew, nil},
		{"also by a new pod of that name", takeOver, with(retained, otherUID), boundAnew, nil},
		{"a Quarantined lease is taken over, and the last holder named until verified", takeOver, quarantined,
			with(boundAnew, previous(*quarantined.Previous)), nil},
		{"without a record of the last holder, the holder is it; its node is not known", takeOver, with(quarantined, noPrevious),
			with(boundAnew, previous(v1alpha1.PreviousHolder{Session: "node-2/boot-7", PodUID: "uid-1", MAC: "02:00:00:00:00:01",
				Guarded: true, Reason: v1alpha1.ReasonPodGone, Since: metav1.NewTime(before)})), nil},
		{"a conflict is remembered until verified", takeOver, with(retained, func(s *spec) { s.Conflict = conflict }),
			with(boundAnew, func(s *spec) { s.Conflict = conflict }), nil},
		{"the new pod's retention counts, not its predecessor's", takeOver,
			with(retained, func(s *spec) { s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever} }), boundAnew, nil},
		{"a newer sandbox of the same pod re-binds", takeOver, mine, boundAnew, nil},
		{"a newer sandbox after a reboot does not assume the older one gone (R8)", takeOver, rebooted,
			with(boundAnew, previous(v1alpha1.PreviousHolder{Node: "n1", Session: "node-1/boot-0", PodUID: "uid-1",
				MAC: "02:00:00:00:00:01", Guarded: true, Since: metav1.NewTime(before)})), nil},
		{"an unfinished verification is not forgotten by the next sandbox", takeOver, with(mine, previous(*quarantined.Previous)),
			with(boundAnew, previous(*quarantined.Previous)), nil},
		{"a lease that is kept for a pod is taken over by its next sandbox", toPlain, with(retained, sandboxEnded), with(boundAnew, plain), nil},
		{"not by another pod of that name", toPlain, with(retained, sandboxEnded, otherUID), spec{}, ErrIdentity},
		{"not what is verified after another pod of that name", toPlain, with(quarantined, plain, otherUID), spec{}, ErrIdentity},
		{"not by a StatefulSet's pod after a pod of that name that had no StatefulSet", takeOver, with(quarantined, plain, otherUID), spec{}, ErrIdentity},
		{"not of another pod", takeOver, with(retained, otherPod), spec{}, ErrIdentity},
		{"not of another namespace", takeOver, with(retained, otherNamespace), spec{}, ErrIdentity},
		{"not of another interface of the pod", takeOver, with(quarantined, otherInterface), spec{}, ErrIdentity},
		{"not of nobody", takeOver, with(quarantined, nobody), spec{}, ErrIdentity},
		{"not what is Bound on another node", takeOver, other, spec{}, ErrState},
		{"not what is Bound to another pod of that name", takeOver, with(mine, otherUID), spec{}, ErrState},
		{"not what is Warm", takeOver, with(mine, warm), spec{}, ErrIdentity},

		{"a pod's address is taken back that was set aside because it answered", TakeBack(answering), quarantinedElsewhere,
			with(boundAnew, func(s *spec) { s.Holder.MAC = conflict.MAC }), nil},
		{"not where another answered", TakeBack(request("c1")), quarantinedElsewhere, spec{}, ErrState},
		{"not where it waits for a pod", TakeBack(answering), with(quarantined, func(s *spec) { s.Reason, s.Conflict = v1alpha1.ReasonConflict, conflict }), spec{}, ErrState},
		{"not where a predecessor is unproven", TakeBack(answering), with(quarantinedElsewhere, previous(*quarantined.Previous)), spec{}, ErrState},
		{"not where it was set aside for another reason", TakeBack(answering), with(quarantinedElsewhere, func(s *spec) { s.Reason = v1alpha1.ReasonPodGone }), spec{}, ErrState},

		{"a verified take-over is confirmed", Confirm, with(boundAnew, previous(*quarantined.Previous), func(s *spec) { s.Conflict = conflict }), boundAnew, nil},
		{"only a Bound lease is confirmed", Confirm, quarantined, spec{}, ErrState},
		{"a take-over without proof waits, with its pod and the last holder", Unverified("deaf"), with(boundAnew, previous(*quarantined.Previous)),
			with(boundAnew, previous(*quarantined.Previous), func(s *spec) {
				s.State, s.Reason, s.Message = v1alpha1.StateQuarantined, v1alpha1.ReasonUnverified, "deaf"
			}), nil},
		{"a proven lease is taken over by one write", TakeProven(request("c1")), quarantined, boundAnew, nil},
		{"not of another pod, also if proven", TakeProven(request("c1")), with(quarantined, otherPod), spec{}, ErrIdentity},
		{"without proof it is kept for the pod, with the last holder", TakeUnproven(request("c1"), "deaf"), quarantined,
			with(boundAnew, previous(*quarantined.Previous), func(s *spec) {
				s.State, s.Reason, s.Message = v1alpha1.StateQuarantined, v1alpha1.ReasonUnverified, "deaf"
			}), nil},
		{"only a Bound lease is unverified", Unverified(""), retained, spec{}, ErrState},

		{"DEL retains", Retain, mine, retainedNow, nil},
		{"DEL keeps the address of a pod that lives", KeepForPod, with(mine, plain), with(retainedNow, sandboxEnded), nil},
		{"nothing is kept for no pod", KeepForPod, with(quarantined, nobody), spec{}, ErrState},
		{"a verification retains, and what was feared is forgotten", Retain,
			with(mine, aside, previous(*quarantined.Previous)), retainedNow, nil},
		{"a verification of a migration's source retains its reason", Retain,
			with(mine, aside, func(s *spec) { s.Reason = v1alpha1.ReasonMigrated }), with(retainedNow, func(s *spec) { s.Reason = v1alpha1.ReasonMigrated }), nil},
		{"nothing is retained for nobody", Retain, with(quarantined, nobody), spec{}, ErrState},
		{"a Retained lease is not retained again", Retain, retained, spec{}, ErrState},
		{"a Warm lease is not retained", Retain, with(mine, warm), spec{}, ErrState},

		{"a lease of an earlier boot is set aside with its holder as the last", Quarantine(v1alpha1.ReasonUnverified, "rebooted"), rebooted,
			with(rebooted, previous(v1alpha1.PreviousHolder{Node: "n1", Session: "node-1/boot-0", PodUID: "uid-1", MAC: "02:00:00:00:00:01",
				Guarded: true, Reason: v1alpha1.ReasonUnverified, Since: metav1.NewTime(now)}), func(s *spec) {
				s.State, s.Reason, s.Message, s.Since = v1alpha1.StateQuarantined, v1alpha1.ReasonUnverified, "rebooted", metav1.NewTime(now)
			}), nil},
		{"a take-over of an earlier boot keeps the predecessor that it has not proven", Quarantine(v1alpha1.ReasonNodeRestarted, ""),
			with(rebooted, previous(*quarantined.Previous)), with(rebooted, previous(*quarantined.Previous), func(s *spec) {
				s.State, s.Reason, s.Since = v1alpha1.StateQuarantined, v1alpha1.ReasonNodeRestarted, metav1.NewTime(now)
			}), nil},
		{"only a Bound lease is set aside", Quarantine(v1alpha1.ReasonPodGone, ""), retained, spec{}, ErrState},

		{"a conflict at ADD sets the address aside for nobody", QuarantineConflict(stranger), mine, with(mine, aside, nobody), nil},
		{"only a Bound lease meets a conflict at ADD", QuarantineConflict(stranger), retained, spec{}, ErrState},

		{"a later conflict leaves the lease Bound", RecordConflict(stranger), mine, with(mine, func(s *spec) {
			s.Conflict, s.Message = conflict, "0a:00:00:00:00:09 uses the address too (probe)"
		}), nil},
		{"a conflict seen again counts, from when it was first seen", RecordConflict(Evidence{MAC: "0b", Source: "guard", Message: "m"}),
			with(mine, func(s *spec) {
				s.Conflict = &v1alpha1.Conflict{MAC: "0a", Source: "probe", FirstSeen: metav1.NewTime(before), LastSeen: metav1.NewTime(before), Count: 4}
			}),
			with(mine, func(s *spec) {
				s.Conflict = &v1alpha1.Conflict{MAC: "0b", Source: "guard", FirstSeen: metav1.NewTime(before), LastSeen: metav1.NewTime(now), Count: 5}
				s.Message = "m"
			}), nil},
		{"only a Bound lease records a conflict", RecordConflict(stranger), quarantined, spec{}, ErrState},

		{"a Warm lease is bound", bind, kept, boundAnew, nil},
		{"on the parent of its pod", bind, with(kept, func(s *spec) { s.Parent = "ens2" }), boundAnew, nil},
		{"also one of an earlier session, which the caller has verified in this one", bind, with(rebooted, warm), boundAnew, nil},
		{"not one of another node", bind, with(other, warm), spec{}, ErrState},
		{"not one that was thrown out", bind, with(kept, nobody, func(s *spec) { s.State = v1alpha1.StateQuarantined }), spec{}, ErrState},
		{"not one that was bound meanwhile", bind, mine, spec{}, ErrState},

		{"a Warm lease for whose address somebody speaks is set aside, with its MAC", throwOut, kept, with(kept, aside), nil},
		{"a Bound one is not", throwOut, mine, spec{}, ErrState},
		{"nor one that waits for proof", throwOut, quarantined, spec{}, ErrState},
	} {
		t.Run(c.rule, func(t *testing.T) {
			original := c.from.DeepCopy()
			got, err := c.do(*c.from.DeepCopy(), me)
			check.Must(t, errors.Is(err, c.err) && (err == nil) == (c.err == nil), "error %v, want %v", err, c.err)
			if err == nil {
				check.Same(t, got, c.want, "the value")
			}
			check.Same(t, c.from, *original, "the old spec was changed")
		})
	}
}

func TestANewLeaseIsBoundToItsHolder(t *testing.T) {
	r := request("c1")
	r.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever}
	got := Bind(r, me)
	check.Same(t, got, with(boundAnew, func(s *spec) { s.Retention = r.Retention }), "the value")
	got.Holder.Pod, got.Retention.Policy = "changed", "changed"
	check.That(t, r.Holder.Pod == "web-0" && r.Retention.Policy == v1alpha1.RetainForever, "the spec shares memory with the request")
}
