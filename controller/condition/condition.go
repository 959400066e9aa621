// Package condition makes and words the conditions of records, and the events
// that tell of their changes. Everything is bounded: a condition's message holds
// 32768 characters; what is longer the API server refuses, and the whole status
// with it.
package condition

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Set returns the conditions of a record with those of now among them. One whose
// status stays keeps its time of transition.
func Set(was []metav1.Condition, generation int64, at metav1.Time, now ...metav1.Condition) []metav1.Condition {
	// SetStatusCondition changes elements, which may be the cache's own.
	is := slices.Clone(was)
	for _, c := range now {
		c.ObservedGeneration, c.LastTransitionTime = generation, at
		meta.SetStatusCondition(&is, c)
	}
	return is
}

// HasChanged says whether a condition is new, or its status or reason another.
func HasChanged(was []metav1.Condition, c metav1.Condition) bool {
	old := meta.FindStatusCondition(was, c.Type)
	return old == nil || old.Status != c.Status || old.Reason != c.Reason
}

// Event tells that a condition has changed.
type Event struct{ Type, Reason, Note string }

// Events returns what there is to tell of conditions that have changed for the
// worse or back. A reason that somebody asked for is no warning.
func Events(was, is []metav1.Condition, askedFor ...string) []Event {
	var events []Event
	for _, c := range is {
		good := (c.Type == v1alpha1.ConditionReady) == (c.Status == metav1.ConditionTrue)
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
