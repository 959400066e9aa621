// SPDX-License-Identifier: Apache-2.0

package condition_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
