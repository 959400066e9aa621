// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/test/check"
)

func reserving(name, ip string, edit func(*v1alpha1.ReservedIP)) *v1alpha1.ReservedIP {
	r := &v1alpha1.ReservedIP{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ReservedIPSpec{IPs: []string{ip}}}
	if edit != nil {
		edit(r)
	}
	return r
}

func virtual(r *v1alpha1.ReservedIP) { r.Spec.Virtual = &v1alpha1.ReservedVirtual{Namespace: "shop"} }

func TestReservationsAreTheLatestAtOnce(t *testing.T) {
	s := newReservations(nil)
	set := func() string { return strings.Join(s.all().Set().Entries(), " ") }
	check.Equal(t, set(), "", "at first,")
	check.OK(t, s.Replace([]any{reserving("b", "10.0.0.2", nil), reserving("c", "10.0.0.4", virtual)}, "1"))
	_, isOpen := <-s.filled
	check.That(t, !isOpen, "it is not filled")
	was := "10.0.0.2 10.0.0.4"
	check.Equal(t, set(), was, "after the list,")
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error { return s.Add(reserving("a", "10.0.0.6", nil)) }, "10.0.0.2 10.0.0.4 10.0.0.6"},
		{func() error { return s.Update(reserving("b", "10.0.0.8", nil)) }, "10.0.0.4 10.0.0.6 10.0.0.8"},
		{func() error { return s.Delete(reserving("a", "", nil)) }, "10.0.0.4 10.0.0.8"},
		{func() error { return s.Delete(reserving("unknown", "", nil)) }, "10.0.0.4 10.0.0.8"},
		{func() error { return s.Replace([]any{reserving("d", "10.0.0.1", nil)}, "2") }, "10.0.0.1"},
	} {
		before := s.all()
		check.OK(t, step.do())
		check.Equal(t, set(), step.want, "then")
		for text := range strings.FieldsSeq(was) {
			check.Equal(t, len(before.At(netip.MustParseAddr(text))), 1, "who has asked before still sees of %s", text)
		}
		was = step.want
	}
}

func TestOnlyReservationsWithAStatusToReadAreKeptWhole(t *testing.T) {
	s := newReservations(nil)
	machine := func(r *v1alpha1.ReservedIP) { r.Spec.For = &v1alpha1.ReservedFor{MAC: "02:00:00:00:00:01"} }
	check.OK(t, s.Replace([]any{reserving("plain", "10.0.0.1", nil), reserving("virtual", "10.0.0.2", virtual), reserving("machine", "10.0.0.3", machine)}, "1"))
	names := func() (all []string) {
		for _, r := range s.list() {
			all = append(all, r.Name)
		}
		return all
	}
	check.List(t, names(), []string{"machine", "virtual"}, "whole are")
	_, err := s.get("plain")
	check.That(t, apierrors.IsNotFound(err), "the plain one: %v", err)
	check.OK(t, s.Update(reserving("virtual", "10.0.0.2", nil)))
	check.List(t, names(), []string{"machine"}, "after an edit, whole are")
}

func TestWhichChangesOfReservationsWakeWhom(t *testing.T) {
	s, told := newReservations(nil), []string{}
	s.told = append(s.told, func(c reservationChange) {
		told = nil
		for who, passes := range map[string]func(reservationChange) bool{"keeper, waits": respecified, "virtuals": judged, "speakers": spoken} {
			if passes(c) {
				told = append(told, who)
			}
		}
		slices.Sort(told)
	})
	judgedVirtual := func(r *v1alpha1.ReservedIP) {
		virtual(r)
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionContested, Status: metav1.ConditionTrue}}
	}
	spokenFor := func(r *v1alpha1.ReservedIP) {
		judgedVirtual(r)
		r.Status.Speakers = []v1alpha1.Speaker{{Address: "10.0.0.2"}}
	}
	for _, row := range []struct {
		name string
		do   func() error
		want string
	}{
		{"a new one", func() error { return s.Add(reserving("r", "10.0.0.1", nil)) }, "keeper, waits; virtuals"},
		{"its status", func() error {
			return s.Update(reserving("r", "10.0.0.1", func(r *v1alpha1.ReservedIP) { r.Status.InUse = 1 }))
		}, ""},
		{"it becomes virtual", func() error { return s.Update(reserving("r", "10.0.0.1", virtual)) }, "keeper, waits; speakers; virtuals"},
		{"it is contested", func() error { return s.Update(reserving("r", "10.0.0.1", judgedVirtual)) }, "speakers; virtuals"},
		{"a pod speaks", func() error { return s.Update(reserving("r", "10.0.0.1", spokenFor)) }, "speakers"},
		{"it is virtual no more", func() error { return s.Update(reserving("r", "10.0.0.1", nil)) }, "keeper, waits; speakers; virtuals"},
		{"it is gone", func() error { return s.Delete(reserving("r", "", nil)) }, "keeper, waits; virtuals"},
	} {
		check.OK(t, row.do())
		check.Equal(t, strings.Join(told, "; "), row.want, "%s wakes", row.name)
	}
}
