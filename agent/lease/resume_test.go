// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// known is an answered ADD of container c0 in this session, whose pod is wanted.
func known(changes ...func(*Known)) Known {
	k := Known{
		ContainerID: "c0", Interface: "eth0", PodUID: "uid-1", LeaseUID: "lease-1",
		Node: me.Node, Session: me.Session, Pod: PodWanted,
	}
	for _, change := range changes {
		change(&k)
	}
	return k
}

func leaseOf(s spec, uid types.UID) *v1alpha1.IPLease {
	return &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.5", UID: uid}, Spec: s}
}

func TestResumeGoesByTheRecord(t *testing.T) {
	lost := func(k *Known) { k.LeaseUID = "" }
	unwanted := func(k *Known) { k.Pod = PodUnwanted }
	unasked := func(k *Known) { k.Pod = PodUnknown }
	fenced := func(k *Known) { k.Fenced = true }
	givesWay := func(k *Known) { k.GivesWay = true }
	other := leaseOf(other, "lease-2")
	ourMAC := func(k *Known) { k.MAC = conflict.MAC }
	answeredFor := leaseOf(quarantinedElsewhere, "lease-2")
	warmHere := spec{Address: "10.0.0.5", State: v1alpha1.StateWarm, NodeName: me.Node, Session: me.Session}
	newer := leaseOf(with(mine, func(s *spec) { s.Holder.ContainerID = "c1" }), "lease-1")

	for _, c := range []struct {
		rule  string
		known Known
		lease *v1alpha1.IPLease
		want  Action
	}{
		{"still mine", known(), leaseOf(mine, "lease-1"), GoOn},
		{"still mine, whatever becomes of the pod", known(unwanted), leaseOf(mine, "lease-1"), GoOn},
		{"still mine, though a conflict was noted", known(), leaseOf(with(mine, func(s *spec) { s.Conflict = conflict }), "lease-1"), GoOn},
		{"mine by the record, fenced by the wire: nobody of this cluster was meant to", known(fenced), leaseOf(mine, "lease-1"), RenewToken},
		{"the same before the last boot", known(fenced), leaseOf(rebooted, "lease-1"), Release},
		{"mine by the record, fenced by a pod whose lease the store has lost", known(fenced, givesWay), leaseOf(mine, "lease-1"), FenceAndDeletePod},
		{"still mine, though the answer to the create was lost", known(lost), leaseOf(mine, "lease-9"), GoOn},

		{"someone else's", known(), other, FenceAndDeletePod},
		{"someone else's, and the pod is going anyway", known(unwanted), other, Release},
		{"someone else's, and Kubernetes cannot be asked", known(unasked), other, FenceAndAsk},
		{"deleted and created anew for this container by nobody here", known(), leaseOf(mine, "lease-2"), FenceAndDeletePod},
		{"quarantined", known(), leaseOf(with(mine, func(s *spec) { s.State = v1alpha1.StateQuarantined }), "lease-1"), FenceAndDeletePod},
		{"retained", known(unwanted), leaseOf(retained, "lease-1"), Release},
		{"moved to another node", known(), leaseOf(with(mine, func(s *spec) { s.NodeName = "n2" }), "lease-1"), FenceAndDeletePod},
		{"re-bound by a newer sandbox of the same pod: the pod is well", known(), newer, Release},
		{"re-bound by a newer pod of the same name", known(), leaseOf(with(newer.Spec, otherUID), "lease-1"), FenceAndDeletePod},

		{"quarantined elsewhere because our pod answered for it", known(ourMAC), answeredFor, Rebind},
		{"quarantined elsewhere because a third answered", known(), answeredFor, FenceAndDeletePod},
		{"quarantined elsewhere, but fenced here since", known(ourMAC, fenced), answeredFor, FenceAndDeletePod},
		{"quarantined elsewhere, and the pod is not wanted", known(ourMAC, unwanted), answeredFor, Release},
		{"quarantined elsewhere, and Kubernetes cannot be asked", known(ourMAC, unasked), answeredFor, Wait},

		{"kept ready here, as before the pod got it", known(), leaseOf(warmHere, "lease-1"), Rebind},
		{"kept ready here, and the pod is not wanted", known(unwanted), leaseOf(warmHere, "lease-1"), Release},
		{"kept ready here, and Kubernetes cannot be asked", known(unasked), leaseOf(warmHere, "lease-1"), Wait},
		{"kept ready here, but fenced here since", known(fenced), leaseOf(warmHere, "lease-1"), FenceAndDeletePod},
		{"kept ready in an earlier boot", known(), leaseOf(with(warmHere, func(s *spec) { s.Session = "s0" }), "lease-1"), FenceAndDeletePod},
		{"kept ready by another node", known(), leaseOf(with(warmHere, func(s *spec) { s.NodeName = "n2" }), "lease-1"), FenceAndDeletePod},

		{"gone, and the pod lives", known(), nil, Rebind},
		{"gone, and the pod is not wanted", known(unwanted), nil, Release},
		{"gone, and Kubernetes cannot be asked", known(unasked), nil, Wait},
		{"gone, and the address was fenced here", known(fenced), nil, FenceAndDeletePod},

		{"bound in an earlier boot: only a verification frees it (R8)", known(), leaseOf(rebooted, "lease-1"), Release},
	} {
		t.Run(c.rule, func(t *testing.T) { check.Equal(t, Resume(c.known, c.lease), c.want, "got") })
	}
}

// R15: the source of a migration is left to KubeVirt, and its slot lives until the target is proven.
func TestTheSourceOfAMigration(t *testing.T) {
	k := Known{ContainerID: "c", Interface: "eth0", PodUID: "a", Machine: "db", Namespace: "shop", Node: "n1", Session: "s1", Pod: PodWanted}
	to := func(holder *v1alpha1.Holder, change ...func(*spec)) *v1alpha1.IPLease {
		s := spec{State: v1alpha1.StateBound, NodeName: "n2", Holder: holder}
		for _, c := range change {
			c(&s)
		}
		return leaseOf(s, "lease-1")
	}
	handedOver := func(s *spec) { s.State, s.Reason = v1alpha1.StateQuarantined, v1alpha1.ReasonMigrated }
	unconfirmed := func(s *spec) { s.Previous = &v1alpha1.PreviousHolder{Node: "n1"} }
	aside := func(s *spec) {
		s.State, s.Reason = v1alpha1.StateQuarantined, v1alpha1.ReasonUnverified
		s.Previous = &v1alpha1.PreviousHolder{Node: "n1", PodUID: "a", Reason: v1alpha1.ReasonMigrated}
	}
	retained := func(s *spec) { s.State, s.Reason = v1alpha1.StateRetained, v1alpha1.ReasonMigrated }
	byForce := func(s *spec) { s.State = v1alpha1.StateRetained }
	other := launcher("c")
	other.OwnerName = "log"
	for _, row := range []struct {
		name  string
		lease *v1alpha1.IPLease
		want  Action
	}{
		{"handed over, and the target has not claimed", to(launcher("a"), handedOver), Wait},
		{"taken over, and not proven", to(launcher("b"), unconfirmed), Wait},
		{"the target found no proof", to(launcher("b"), aside), Wait},
		{"an older agent of the target found none", to(launcher("a"), aside), Wait},
		{"another node has proven it", to(launcher("a"), retained), Release},
		{"taken by force and proven", to(launcher("a"), byForce), FenceAndDeletePod},
		{"taken over for good", to(launcher("b")), Release},
		{"taken by another machine", to(other), FenceAndDeletePod},
	} {
		check.Equal(t, Resume(k, row.lease), row.want, "%s:", row.name)
	}
}

func TestOnlyTheSameSessionGoesWithoutVerification(t *testing.T) {
	for rule, c := range map[string]struct {
		spec spec
		want bool
	}{
		"bound here in this session":       {mine, false},
		"bound here before a reboot":       {rebooted, true},
		"bound elsewhere":                  {other, true},
		"taken over and not yet confirmed": {with(mine, previous(*quarantined.Previous)), true},
		"retained: proven when it was":     {retained, false},
		"warm in this session":             {with(mine, warm), false},
		"warm before a reboot":             {with(rebooted, warm), true},
		"quarantined":                      {quarantined, true},
		"quarantined in this session":      {with(mine, func(s *spec) { s.State = v1alpha1.StateQuarantined }), true},
		"a state of a later version":       {with(mine, func(s *spec) { s.State = "Later" }), true},
	} {
		check.Equal(t, NeedsVerification(&c.spec, me.Session), c.want, "%s:", rule)
	}
}
