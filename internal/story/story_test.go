// SPDX-License-Identifier: Apache-2.0

package story

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func TestTheStoryOfALease(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	now := noon.Add(5 * time.Minute)
	web := &v1alpha1.Holder{Namespace: "shop", Pod: "web-0", Interface: "eth0", MAC: "02:00:00:00:00:07", OwnerKind: "StatefulSet", OwnerName: "web", Guarded: true}
	unguarded := &v1alpha1.Holder{Namespace: "shop", Pod: "web-0"}
	before := &v1alpha1.PreviousHolder{Node: "n1", MAC: "02:00:00:00:00:08", Reason: v1alpha1.ReasonPodGone, Since: metav1.NewTime(noon)}
	const silent, unused = "nobody gets it until its last holder is fenced, gone or proven silent.", "nobody gets it until no other host uses it."
	for name, c := range map[string]struct {
		spec v1alpha1.IPLeaseSpec
		now  time.Time
		want []string
	}{
		"a pod has it": {v1alpha1.IPLeaseSpec{State: v1alpha1.StateBound, NodeName: "n1", Parent: "eth1", Holder: web}, now, []string{
			"10.0.0.5 is Bound to pod shop/web-0, interface eth0 on node n1 since 2030-01-01T12:00:00Z, 5m ago.",
			"Its pool is floor, its parent eth1, its MAC 02:00:00:00:00:07.", "The pod belongs to StatefulSet web.",
		}},
		"a page leaves out ages": {v1alpha1.IPLeaseSpec{State: v1alpha1.StateBound, NodeName: "n1", Holder: unguarded, Reason: v1alpha1.ReasonOutsidePool, Message: "it left."}, time.Time{}, []string{
			"10.0.0.5 is Bound to pod shop/web-0, interface unknown on node n1 since 2030-01-01T12:00:00Z (OutsidePool).", "Its pool is floor.",
			"It has no guard: its agent fences it by switching its VF off, so a claim silences it only while this agent lives.", "Its record says: it left.",
		}},
		"a take-over that is not confirmed": {v1alpha1.IPLeaseSpec{State: v1alpha1.StateBound, NodeName: "n2", Holder: web, Previous: before}, now, []string{
			"10.0.0.5 is Bound to pod shop/web-0, interface eth0 on node n2 since 2030-01-01T12:00:00Z, 5m ago.",
			"Its pool is floor, its MAC 02:00:00:00:00:07.", "The pod belongs to StatefulSet web.", "It was taken from node n1.",
			"This was 2030-01-01T12:00:00Z, 5m ago, because of PodGone, and that holder had MAC 02:00:00:00:00:08.",
		}},
		"a node keeps it ready": {v1alpha1.IPLeaseSpec{State: v1alpha1.StateWarm, NodeName: "n1"}, now, []string{
			"10.0.0.5 is Warm since 2030-01-01T12:00:00Z, 5m ago: node n1 keeps it ready for its next pod.", "Its pool is floor.",
		}},
		"it is kept for a name": {v1alpha1.IPLeaseSpec{State: v1alpha1.StateRetained, Holder: unguarded}, now, []string{
			"10.0.0.5 is Retained for pod shop/web-0, interface unknown since 2030-01-01T12:00:00Z, 5m ago.", "Its pool is floor.",
		}},
		"it was taken": {v1alpha1.IPLeaseSpec{State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonPodGone, NodeName: "n2", Holder: unguarded, Previous: before}, time.Time{}, []string{
			"10.0.0.5 is Quarantined since 2030-01-01T12:00:00Z (PodGone): " + silent, "Node n2 verifies it.", "Its pool is floor.",
			"It was taken from pod shop/web-0 on node n1.", "This was 2030-01-01T12:00:00Z, because of PodGone, and that holder had MAC 02:00:00:00:00:08.",
		}},
		"another host uses it": {v1alpha1.IPLeaseSpec{State: v1alpha1.StateQuarantined, Reason: v1alpha1.ReasonConflict,
			Conflict: &v1alpha1.Conflict{MAC: "02:00:00:00:00:09", Source: "probe", Count: 1, LastSeen: metav1.NewTime(noon)}}, now, []string{
			"10.0.0.5 is Quarantined since 2030-01-01T12:00:00Z, 5m ago (Conflict): " + unused, "Its pool is floor.",
			"Another host with MAC 02:00:00:00:00:09 was heard by the probe, 1 time, last 2030-01-01T12:00:00Z, 5m ago.",
		}},
	} {
		c.spec.Pool, c.spec.Since = "floor", metav1.NewTime(noon)
		check.Equal(t, strings.Join(Of("10.0.0.5", &c.spec, c.now), "\n"), strings.Join(c.want, "\n"), "%s:", name)
	}
	check.Equal(t, When(now, noon), "2030-01-01T12:05:00Z, in 5m", "a time to come:")
}

func TestTheSpeakerOfAVirtualAddress(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	r := &v1alpha1.ReservedIP{Spec: v1alpha1.ReservedIPSpec{Virtual: &v1alpha1.ReservedVirtual{Namespace: "shop"}}, Status: v1alpha1.ReservedIPStatus{
		Speakers: []v1alpha1.Speaker{{Address: "10.0.0.5", Pod: "a", Node: "n1", MAC: "00:00:5e:00:01:33", Since: metav1.NewMicroTime(noon)}},
	}}
	check.Equal(t, Speaker(r, "10.0.0.5", time.Time{}), "Pod shop/a on node n1 speaks for it, with MAC 00:00:5e:00:01:33, since 2030-01-01T12:00:00Z.", "it says")
	check.Equal(t, Speaker(r, "10.0.0.6", time.Time{}), "", "of another address it says")
}
