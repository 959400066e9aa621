// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/controller/reclaim"
)

// Explainer decides about a lease as the controller does, and changes nothing.
type Explainer interface {
	Explain(ctx context.Context, lease *v1alpha1.IPLease) (reclaim.Action, error)
}

// Sentences says what a lease records.
func Sentences(l *v1alpha1.IPLease) []string {
	s := &l.Spec
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	since := ""
	if !s.Since.IsZero() {
		since = " since " + at(s.Since)
	}
	switch s.State {
	case v1alpha1.StateBound:
		say("%s is Bound to %s on node %s%s.", s.Address, holder(s.Holder), s.NodeName, since)
	case v1alpha1.StateWarm:
		say("%s is Warm%s: node %s keeps it ready for its next pod.", s.Address, since, s.NodeName)
	case v1alpha1.StateRetained:
		say("%s is Retained for %s%s.", s.Address, holder(s.Holder), since)
	default:
		until := "its last holder is fenced, gone or proven silent"
		if s.Reason == v1alpha1.ReasonConflict {
			until = "no other host uses it"
		}
		say("%s is Quarantined%s (%s): nobody gets it until %s.", s.Address, since, s.Reason, until)
		if s.NodeName != "" {
			say("Node %s verifies it.", s.NodeName)
		}
	}
	if c := s.Conflict; c != nil && c.MAC != "" {
		say("The host with MAC %s used the address. It was seen %d times, last at %s.", c.MAC, c.Count, at(c.LastSeen))
	}
	if p := s.Previous; p != nil {
		say("It was taken from %s.", lastHolder(s))
	}
	if s.Holder != nil && s.State == v1alpha1.StateBound && !s.Holder.Guarded {
		say("It has no guard: its agent fences it by switching its VF off.")
	}
	if s.Message != "" {
		say("Its record says: %s.", s.Message)
	}
	return all
}

// Decision says what the controller does next.
func Decision(a reclaim.Action) string {
	switch a.Kind {
	case reclaim.Wait:
		return fmt.Sprintf("The controller decides again at %s: %s.", a.Until.UTC().Format(time.RFC3339), a.Why)
	case reclaim.DeletePod:
		return fmt.Sprintf("The controller deletes the pod, and then takes the address: %s.", a.Why)
	case reclaim.Quarantine:
		return fmt.Sprintf("The controller takes the address (%s): %s.", a.Reason, a.Why)
	case reclaim.Reassign:
		return fmt.Sprintf("The controller asks another node to verify: %s.", a.Why)
	case reclaim.EndRetention, reclaim.EndQuarantine:
		return fmt.Sprintf("The controller frees the address: %s.", a.Why)
	}
	return fmt.Sprintf("The controller leaves the lease as it is: %s.", a.Why)
}

func at(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

func holder(h *v1alpha1.Holder) string {
	if h == nil || h.Pod == "" {
		return "no pod"
	}
	return fmt.Sprintf("pod %s/%s, interface %s", h.Namespace, h.Pod, h.Interface)
}
