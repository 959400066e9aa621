// SPDX-License-Identifier: Apache-2.0

//go:build api

package records

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

// bound is a lease as an agent of node n1 makes it for pod default/web-0.
func bound(network, address string, changes ...func(*v1alpha1.IPLease)) *v1alpha1.IPLease {
	addr := netip.MustParseAddr(address)
	l := &v1alpha1.IPLease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LeaseName(network, addr)},
		Spec: v1alpha1.IPLeaseSpec{
			Address: addr.String(), Pool: "pool", Parent: "eth1", State: v1alpha1.StateBound,
			NodeName: "n1", Session: "node-uid/boot-id",
			Holder: &v1alpha1.Holder{
				Namespace: "default", Pod: "web-0", PodUID: "u", Interface: "eth0", ContainerID: "c",
				MAC: "02:00:00:00:00:01", Guarded: true, OwnerKind: "StatefulSet", OwnerName: "web",
			},
		},
	}
	for _, change := range changes {
		change(l)
	}
	return l
}

// forced carries the annotation with which a person may do anything.
func forced(l *v1alpha1.IPLease) {
	l.Annotations = map[string]string{v1alpha1.AnnotationForceDelete: "test"}
}

func named(name string) func(*v1alpha1.IPLease) {
	return func(l *v1alpha1.IPLease) { l.Name = name }
}

func in(state v1alpha1.LeaseState) func(*v1alpha1.IPLease) {
	return func(l *v1alpha1.IPLease) { l.Spec.State = state }
}

func on(node string) func(*v1alpha1.IPLease) {
	return func(l *v1alpha1.IPLease) { l.Spec.NodeName = node }
}

func because(reason v1alpha1.LeaseReason) func(*v1alpha1.IPLease) {
	return func(l *v1alpha1.IPLease) { l.Spec.Reason = reason }
}

func spec(change func(*v1alpha1.IPLeaseSpec)) func(*v1alpha1.IPLease) {
	return func(l *v1alpha1.IPLease) { change(&l.Spec) }
}

// asks has the retention that an annotation asks for.
func asks(t *testing.T, retention string) func(*v1alpha1.IPLease) {
	t.Helper()
	asked := check.Value(v1alpha1.ParseRetention(map[string]string{v1alpha1.AnnotationPrefix + v1alpha1.AnnotationIPRetention: retention}))(t)
	return spec(func(s *v1alpha1.IPLeaseSpec) { s.Retention = asked })
}

func (e *env) testLeasesAccepted(t *testing.T) {
	for name, l := range map[string]*v1alpha1.IPLease{
		"IPv4":                     bound("", "10.1.0.1"),
		"IPv4 of a network":        bound("lab-2", "10.1.0.1"),
		"IPv6":                     bound("", "fd00:1::1"),
		"IPv6 of a network":        bound("lab", "2001:db8::1"),
		"the IPv6 loopback's form": bound("", "::1"),
		"Warm, without a holder":   bound("", "10.1.0.1", in(v1alpha1.StateWarm), spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder = nil })),
		"Quarantined, without holder and node": bound("", "10.1.0.1", in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonConflict),
			spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder, s.NodeName = nil, "" })),
		"Retained, without a node":                bound("", "10.1.0.1", in(v1alpha1.StateRetained), on("")),
		"a holder without MAC or guard":           bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.MAC, s.Holder.Guarded = "", false })),
		"a retention that is a fraction of hours": bound("", "10.1.0.1", asks(t, "333.33333333h")),
		"a retention of no time at all":           bound("", "10.1.0.1", asks(t, "100us")),
		"everything set": bound("", "10.1.0.1", in(v1alpha1.StateQuarantined), because(v1alpha1.ReasonPodGone), spec(func(s *v1alpha1.IPLeaseSpec) {
			now := metav1.Now()
			s.Since, s.Message = now, strings.Repeat("long ", 400)
			s.Previous = &v1alpha1.PreviousHolder{Node: "n1", Session: "a/b", PodUID: "u", MAC: "02:00:00:00:00:01", Guarded: true, Reason: v1alpha1.ReasonPodGone, Since: now}
			s.Conflict = &v1alpha1.Conflict{MAC: "02:00:00:00:00:02", Source: "observer", FirstSeen: now, LastSeen: now, Count: 3}
			s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor, Duration: &metav1.Duration{Duration: 48 * time.Hour}}
		})),
	} {
		t.Run(name, func(t *testing.T) {
			forced(l)
			check.Is(t, e.admin.Create(t.Context(), l, client.DryRunAll), nil, "got")
		})
	}
}

func (e *env) testLeasesRefused(t *testing.T) {
	const disagree = " is not that of address "
	const misnamed = " is neither an address nor a network, a dot and an address"
	for name, c := range map[string]struct {
		lease *v1alpha1.IPLease
		want  string
	}{
		"the name of another address":              {bound("", "10.1.0.1", named("10.1.0.2")), disagree},
		"a name that ends like the address":        {bound("", "0.1.0.1", named("10.1.0.1")), disagree},
		"a network that starts with a digit":       {bound("", "10.1.0.1", named("1.10.1.0.1")), misnamed},
		"two networks":                             {bound("", "10.1.0.1", named("a.b.10.1.0.1")), misnamed},
		"a network that no pool can have":          {bound("", "10.1.0.1", named("abcdefghijklmnopqrstuvwxyzabcdef.10.1.0.1")), misnamed},
		"the name of an IPv6 address":              {bound("", "10.1.0.1", named("fd00-0001-0000-0000-0000-0000-0000-0001")), disagree},
		"IPv6: the name of another address":        {bound("", "fd00:1::1", named("fd00-0001-0000-0000-0000-0000-0000-0002")), disagree},
		"IPv6: a name that is not expanded":        {bound("", "fd00:1::1", named("fd00-1-0-0-0-0-0-1")), misnamed},
		"IPv6: a name that is not in full":         {bound("", "fd00:1::1", named("fd00-1--1")), misnamed},
		"IPv6: two networks":                       {bound("", "fd00:1::1", named("a.b.fd00-0001-0000-0000-0000-0000-0000-0001")), misnamed},
		"IPv6: a network that starts with a digit": {bound("", "fd00:1::1", named("1.fd00-0001-0000-0000-0000-0000-0000-0001")), misnamed},
		"IPv6: the name of an IPv4 address":        {bound("", "fd00:1::1", named("10.1.0.1")), disagree},
		"no address":                               {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Address = "" })), "spec.address"},
		"address is none":                          {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Address = "10.1.0.1/24" })), "address 10.1.0.1/24 is not an IP address"},
		"address in capitals":                      {bound("", "fd00::a", spec(func(s *v1alpha1.IPLeaseSpec) { s.Address = "FD00::A" })), "address FD00::A is not in canonical form"},
		"address written out":                      {bound("", "fd00::a", spec(func(s *v1alpha1.IPLeaseSpec) { s.Address = "fd00:0::a" })), "address fd00:0::a is not in canonical form"},
		"no pool":                                  {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Pool = "" })), "spec.pool"},
		"no state":                                 {bound("", "10.1.0.1", in("")), "spec.state: Unsupported value"},
		"an unknown state":                         {bound("", "10.1.0.1", in("Free")), `spec.state: Unsupported value: "Free"`},
		"Bound without a node":                     {bound("", "10.1.0.1", on("")), "nodeName must be set in state Bound"},
		"Warm without a node":                      {bound("", "10.1.0.1", in(v1alpha1.StateWarm), on("")), "nodeName must be set in state Warm"},
		"Bound without a holder":                   {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder = nil })), "holder must name namespace and pod in state Bound"},
		"Retained without a pod":                   {bound("", "10.1.0.1", in(v1alpha1.StateRetained), spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.Pod = "" })), "holder must name namespace and pod in state Retained"},
		"Retained without a namespace":             {bound("", "10.1.0.1", in(v1alpha1.StateRetained), spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.Namespace = "" })), "holder must name namespace and pod in state Retained"},
		"Quarantined without a reason":             {bound("", "10.1.0.1", in(v1alpha1.StateQuarantined)), "reason must be set in state Quarantined"},
		"a reason that is a sentence":              {bound("", "10.1.0.1", because("the pod is gone")), "spec.reason in body should match"},
		"a previous reason that is a sentence":     {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Previous = &v1alpha1.PreviousHolder{Reason: "it was gone"} })), "spec.previous.reason in body should match"},
		"the holder's MAC is none":                 {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Holder.MAC = "02-00-00-00-00-01" })), "spec.holder.mac in body should match"},
		"the previous MAC is none":                 {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Previous = &v1alpha1.PreviousHolder{MAC: "x"} })), "spec.previous.mac in body should match"},
		"the conflicting MAC is none":              {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Conflict = &v1alpha1.Conflict{MAC: "x"} })), "spec.conflict.mac in body should match"},
		"a conflict of an unknown source":          {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Conflict = &v1alpha1.Conflict{Source: "rumour"} })), `spec.conflict.source: Unsupported value: "rumour"`},
		"a negative retention": {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) {
			s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainFor, Duration: &metav1.Duration{Duration: -time.Hour}}
		})), "spec.retention.duration in body should match"},
		"an unknown retention": {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) { s.Retention = &v1alpha1.LeaseRetention{Policy: "Never"} })), `spec.retention.policy: Unsupported value: "Never"`},
		"a duration of a retention without end": {bound("", "10.1.0.1", spec(func(s *v1alpha1.IPLeaseSpec) {
			s.Retention = &v1alpha1.LeaseRetention{Policy: v1alpha1.RetainForever, Duration: &metav1.Duration{Duration: time.Hour}}
		})), "duration belongs to policy For, and to no other"},
		"a cascade": {bound("", "10.1.0.1", func(l *v1alpha1.IPLease) {
			l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web-0", UID: "u"}}
		}), "metadata.ownerReferences of a lease must be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			forced(c.lease)
			e.refused(t, e.admin.Create(t.Context(), c.lease, client.DryRunAll), c.want)
		})
	}
}

func (e *env) testLeaseChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.IPLeaseSpec)
		want   string
	}{
		"pool is immutable":     {func(s *v1alpha1.IPLeaseSpec) { s.Pool = "other" }, "pool is immutable"},
		"address is immutable":  {func(s *v1alpha1.IPLeaseSpec) { s.Address = "10.1.0.2" }, "address is immutable"},
		"the state may change":  {func(s *v1alpha1.IPLeaseSpec) { s.State = v1alpha1.StateRetained }, ""},
		"the holder may change": {func(s *v1alpha1.IPLeaseSpec) { s.Holder.PodUID = "v" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := bound("", "10.1.0.1", forced)
			e.create(t, l)
			c.change(&l.Spec)
			e.expect(t, e.admin.Update(t.Context(), l), c.want)
		})
	}
}

// testLeaseSelectors: agents and people list by node, state, pool and namespace.
func (e *env) testLeaseSelectors(t *testing.T) {
	e.create(t, bound("", "10.1.0.1", forced))
	e.create(t, bound("", "10.1.0.2", forced, on("n2"), in(v1alpha1.StateRetained), spec(func(s *v1alpha1.IPLeaseSpec) {
		s.Pool, s.Holder.Namespace = "other", "prod"
	})))
	for field, value := range map[string]string{
		"spec.nodeName": "n2", "spec.state": "Retained", "spec.pool": "other", "spec.holder.namespace": "prod",
	} {
		var leases v1alpha1.IPLeaseList
		check.OK(t, e.admin.List(t.Context(), &leases, client.MatchingFields{field: value}))
		check.That(t, len(leases.Items) == 1 && leases.Items[0].Name == "10.1.0.2", "%s=%s selects %d leases, want 10.1.0.2 alone", field, value, len(leases.Items))
	}
}
