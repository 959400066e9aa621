// SPDX-License-Identifier: Apache-2.0

// Package condition computes conditions, and the events that report their changes. Messages are
// bounded: the API server refuses a status with a message of more than 32768 characters.
package condition

import (
	"cmp"
	"fmt"
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

// None is the reason of a condition that nothing speaks for.
const None = "None"

// If returns a condition that either holds for a reason, or does not hold.
func If(holds bool, kind, reason, message string) metav1.Condition {
	if !holds {
		return False(kind, None, "")
	}
	return True(kind, reason, message)
}

// IsGood reports whether a condition has its good status.
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

// few is the greatest number of items that a message names.
const few = 10

// Few returns a text with the first items and the number of the others.
func Few(items []string, separator string) string {
	return counted(items[:min(few, len(items))], separator, len(items))
}

// Problems returns a text with the first errors that err joins.
func Problems(err error) string { return Few(strings.Split(err.Error(), "\n"), "; ") }

// Leases returns a text with the lowest addresses of the leases and the owner of each. It sorts the
// leases.
func Leases(leases []*v1alpha1.IPLease) string {
	slices.SortFunc(leases, func(a, b *v1alpha1.IPLease) int {
		return cmp.Or(a.Spec.Addr().Compare(b.Spec.Addr()), cmp.Compare(a.Name, b.Name))
	})
	named := make([]string, min(few, len(leases)))
	for i := range named {
		named[i] = leases[i].Spec.Address + " (" + owner(&leases[i].Spec) + ")"
	}
	return counted(named, ", ", len(leases))
}

func counted(named []string, separator string, of int) string {
	text := strings.Join(named, separator)
	if of > len(named) {
		text += fmt.Sprintf(" and %d more", of-len(named))
	}
	return text
}

// owner returns the owner of a lease: "pod shop/web-0", "Retained for pod shop/web-0", "Warm on n1".
func owner(s *v1alpha1.IPLeaseSpec) string {
	switch {
	case s.State == v1alpha1.StateWarm:
		return string(s.State) + " on " + s.NodeName
	case s.Holder == nil || s.Holder.Pod == "":
		return string(s.State)
	case s.State == v1alpha1.StateBound:
		return "pod " + s.Holder.Namespace + "/" + s.Holder.Pod
	}
	return string(s.State) + " for pod " + s.Holder.Namespace + "/" + s.Holder.Pod
}
