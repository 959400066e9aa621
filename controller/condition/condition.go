// SPDX-License-Identifier: Apache-2.0

// Package condition computes the conditions of records, their messages, and the events that report their
// changes. All messages are bounded. The API server refuses a whole status if the message of a condition
// has more than 32768 characters.
package condition

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// True returns a condition that holds.
func True(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// False returns a condition that does not hold.
func False(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// IsGood reports whether a record is well as far as a condition tells.
func IsGood(c metav1.Condition) bool {
	return (c.Type == v1alpha1.ConditionReady) == (c.Status == metav1.ConditionTrue)
}

// Set returns the conditions of a record, updated with the current ones. A condition whose status stays
// keeps its time of transition.
func Set(was []metav1.Condition, generation int64, at metav1.Time, now ...metav1.Condition) []metav1.Condition {
	// SetStatusCondition changes elements, and the slice may belong to the cache.
	is := slices.Clone(was)
	for _, c := range now {
		c.ObservedGeneration, c.LastTransitionTime = generation, at
		meta.SetStatusCondition(&is, c)
	}
	return is
}

// HasChanged reports whether a condition is new, or its status or reason has changed.
func HasChanged(was []metav1.Condition, c metav1.Condition) bool {
	old := meta.FindStatusCondition(was, c.Type)
	return old == nil || old.Status != c.Status || old.Reason != c.Reason
}

// Event is an event that reports the change of a condition.
type Event struct{ Type, Reason, Note string }

// Events returns an event for each condition that has become worse or better. A reason that follows from
// a user's own request is not a warning.
func Events(was, is []metav1.Condition, askedFor ...string) []Event {
	var events []Event
	for _, c := range is {
		good := IsGood(c)
		isNew := meta.FindStatusCondition(was, c.Type) == nil
		if c.Status == metav1.ConditionUnknown || isNew && good || !HasChanged(was, c) {
			continue
		}
		e := Event{Type: corev1.EventTypeWarning, Reason: c.Type + string(c.Status), Note: strings.TrimSuffix(c.Reason+": "+c.Message, ": ")}
		if good || slices.Contains(askedFor, c.Reason) {
			e.Type = corev1.EventTypeNormal
		}
		events = append(events, e)
	}
	return events
}
