// SPDX-License-Identifier: Apache-2.0

package condition_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/condition"
	"github.com/fenceline/fenceline/test/check"
)

func c(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func TestEvents(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	for _, row := range []struct {
		name     string
		was, is  []metav1.Condition
		askedFor []string
		want     []condition.Event
	}{
		{"a new record that is well tells nothing", nil, []metav1.Condition{c("Ready", yes, "Ready", ""), c("Outside", no, "None", "")}, nil, nil},
		{"a new record that is not", nil, []metav1.Condition{c("Ready", no, "Invalid", "why")}, nil,
			[]condition.Event{{Type: "Warning", Reason: "ReadyFalse", Note: "Invalid: why"}}},
		{"for the worse", []metav1.Condition{c("Outside", no, "None", "")}, []metav1.Condition{c("Outside", yes, "AddressInUse", "who")}, nil,
			[]condition.Event{{Type: "Warning", Reason: "OutsideTrue", Note: "AddressInUse: who"}}},
		{"and back", []metav1.Condition{c("Outside", yes, "AddressInUse", "who")}, []metav1.Condition{c("Outside", no, "None", "")}, nil,
			[]condition.Event{{Type: "Normal", Reason: "OutsideFalse", Note: "None"}}},
		{"for another reason", []metav1.Condition{c("Ready", no, "Invalid", "a")}, []metav1.Condition{c("Ready", no, "Overlapping", "b")}, nil,
			[]condition.Event{{Type: "Warning", Reason: "ReadyFalse", Note: "Overlapping: b"}}},
		{"another message alone tells nothing", []metav1.Condition{c("Ready", no, "Invalid", "a")}, []metav1.Condition{c("Ready", no, "Invalid", "b")}, nil, nil},
		{"what is not known tells nothing", []metav1.Condition{c("Outside", no, "None", "")}, []metav1.Condition{c("Outside", unknown, "Invalid", "")}, nil, nil},
		{"what somebody asked for is no warning", []metav1.Condition{c("Ready", yes, "Ready", "")}, []metav1.Condition{c("Ready", no, "Disabled", "b")},
			[]string{"Disabled"}, []condition.Event{{Type: "Normal", Reason: "ReadyFalse", Note: "Disabled: b"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			check.List(t, condition.Events(row.was, row.is, row.askedFor...), row.want, "got")
		})
	}
}

func TestSetKeepsTheTimeOfTransition(t *testing.T) {
	noon := metav1.NewTime(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	later := metav1.NewTime(noon.Add(time.Hour))
	was := condition.Set(nil, 1, noon, c("Ready", metav1.ConditionTrue, "Ready", ""), c("Outside", metav1.ConditionFalse, "None", ""))
	is := condition.Set(was, 2, later, c("Ready", metav1.ConditionTrue, "Ready", ""), c("Outside", metav1.ConditionTrue, "AddressInUse", ""))
	check.That(t, is[0].LastTransitionTime.Equal(&noon) && is[0].ObservedGeneration == 2 && is[1].LastTransitionTime.Equal(&later), "%+v", is)
	check.That(t, was[1].Status == metav1.ConditionFalse && was[0].ObservedGeneration == 1, "what was has changed: %+v", was)
}

func lease(address string, state v1alpha1.LeaseState, pod string) *v1alpha1.IPLease {
	l := &v1alpha1.IPLease{ObjectMeta: metav1.ObjectMeta{Name: address}}
	l.Spec = v1alpha1.IPLeaseSpec{Address: address, State: state, NodeName: "n1"}
	if pod != "" {
		l.Spec.Holder = &v1alpha1.Holder{Namespace: "shop", Pod: pod}
	}
	return l
}

func TestLeases(t *testing.T) {
	var many []*v1alpha1.IPLease
	for i := range 12 {
		many = append(many, lease(fmt.Sprintf("10.1.0.%d", 12-i), v1alpha1.StateWarm, ""))
	}
	for _, row := range []struct {
		name   string
		leases []*v1alpha1.IPLease
		want   string
	}{
		{"none", nil, ""},
		{"by address, not by text", []*v1alpha1.IPLease{
			lease("10.1.0.10", v1alpha1.StateBound, "web-1"), lease("10.1.0.9", v1alpha1.StateBound, "web-0")},
			"10.1.0.9 (pod shop/web-0), 10.1.0.10 (pod shop/web-1)"},
		{"who has it, by state", []*v1alpha1.IPLease{
			lease("10.1.0.1", v1alpha1.StateWarm, ""), lease("10.1.0.2", v1alpha1.StateRetained, "db-0"),
			lease("10.1.0.3", v1alpha1.StateQuarantined, ""), lease("10.1.0.4", v1alpha1.StateQuarantined, "db-1")},
			"10.1.0.1 (Warm on n1), 10.1.0.2 (Retained for pod shop/db-0), 10.1.0.3 (Quarantined), 10.1.0.4 (Quarantined for pod shop/db-1)"},
		{"ten of many, and how many more", many,
			"10.1.0.1 (Warm on n1), 10.1.0.2 (Warm on n1), 10.1.0.3 (Warm on n1), 10.1.0.4 (Warm on n1), 10.1.0.5 (Warm on n1), " +
				"10.1.0.6 (Warm on n1), 10.1.0.7 (Warm on n1), 10.1.0.8 (Warm on n1), 10.1.0.9 (Warm on n1), 10.1.0.10 (Warm on n1) and 2 more"},
	} {
		t.Run(row.name, func(t *testing.T) {
			check.Equal(t, condition.Leases(row.leases), row.want, "got")
		})
	}
}

func TestProblemsAreNamedAndBounded(t *testing.T) {
	check.Equal(t, condition.Problems(errors.Join(errors.New("a"), errors.Join(errors.New("b"), errors.New("c")))), "a; b; c", "got")
	var errs []error
	for i := range 512 {
		errs = append(errs, fmt.Errorf("%d%s", i, strings.Repeat("x", 150)))
	}
	got := condition.Problems(errors.Join(errs...))
	check.That(t, len(got) <= 32768 && strings.HasSuffix(got, " and 502 more"), "%d bytes: %s", len(got), got)
}
