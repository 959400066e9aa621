// SPDX-License-Identifier: Apache-2.0

// Package story tells what is known of an address. The command and the page tell it in the same sentences.
package story

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fenceline/fenceline/apis/v1alpha1"
	"github.com/fenceline/fenceline/internal/inventory"
)

// Of returns a sentence for each fact that a lease records. address is the name of the address for people.
// A zero now leaves out ages, for a page that stays open.
func Of(address string, s *v1alpha1.IPLeaseSpec, now time.Time) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	since := ""
	if !s.Since.IsZero() {
		since = " since " + When(s.Since.Time, now)
	}
	if s.Reason != "" && string(s.Reason) != string(s.State) {
		since += fmt.Sprintf(" (%s)", s.Reason)
	}
	switch s.State {
	case v1alpha1.StateBound:
		say("%s is Bound to %s on node %s%s.", address, holder(s), cmp.Or(s.NodeName, "unknown"), since)
	case v1alpha1.StateWarm:
		say("%s is Warm%s: node %s keeps it ready for its next pod.", address, since, s.NodeName)
	case v1alpha1.StateRetained:
		say("%s is Retained for %s%s.", address, holder(s), since)
	default:
		until := "its last holder is fenced, gone or proven silent"
		if s.Reason == v1alpha1.ReasonConflict {
			until = "no other host uses it"
		}
		say("%s is Quarantined%s: nobody gets it until %s.", address, since, until)
		if s.NodeName != "" {
			say("Node %s verifies it.", s.NodeName)
		}
	}
	record := "Its pool is " + s.Pool
	if s.Parent != "" {
		record += ", its parent " + s.Parent
	}
	if h := s.Holder; h != nil && h.MAC != "" {
		record += ", its MAC " + h.MAC
	}
	say("%s.", record)
	if h := s.Holder; h != nil && h.OwnerKind != "" {
		say("The pod belongs to %s %s.", h.OwnerKind, h.OwnerName)
	}
	if s.State == v1alpha1.StateBound && s.Holder != nil && !s.Holder.Guarded {
		say("It has no guard: its agent fences it by switching its VF off, so a claim silences it only while this agent lives.")
	}
	if p := s.Previous; p != nil {
		say("It was taken from %s.", LastHolder(s))
		if p.Reason != "" {
			say("This was %s, because of %s, and that holder had MAC %s.", When(p.Since.Time, now), p.Reason, cmp.Or(p.MAC, "unknown"))
		}
	}
	if c := s.Conflict; c != nil {
		say("Another host with MAC %s was heard by the %s, %s, last %s.", c.MAC, c.Source, inventory.Count(int(c.Count), "time"), When(c.LastSeen.Time, now))
	}
	if s.Message != "" {
		say("Its record says: %s.", strings.TrimSuffix(s.Message, "."))
	}
	return all
}

// Speaker says who speaks for a virtual address of a reservation, or which host uses the address of a machine. It is
// empty if no pod has announced the address, or no other host was heard.
func Speaker(r *v1alpha1.ReservedIP, address string, now time.Time) string {
	for _, s := range r.Status.Speakers {
		switch mac := r.Machine(); {
		case s.Address != address:
		case mac != "" && s.MAC != mac:
			return fmt.Sprintf("The host with MAC %s uses it, heard by node %s since %s.", s.MAC, s.Node, When(s.Since.Time, now))
		case r.Spec.Virtual != nil:
			said := fmt.Sprintf("Pod %s/%s on node %s speaks for it, with MAC %s, since %s.", r.Spec.Virtual.Namespace, s.Pod, s.Node, s.MAC, When(s.Since.Time, now))
			if s.Idle {
				said += " But the pod has removed the address."
			}
			return said
		}
	}
	return ""
}

// When returns a time with its distance from now. A zero now leaves it out.
func When(t, now time.Time) string {
	text := t.UTC().Format(time.RFC3339)
	switch {
	case now.IsZero():
		return text
	case t.After(now):
		return text + ", in " + duration.HumanDuration(t.Sub(now))
	}
	return text + ", " + duration.HumanDuration(now.Sub(t)) + " ago"
}

// LastHolder names the holder from which an address was taken.
func LastHolder(s *v1alpha1.IPLeaseSpec) string {
	var parts []string
	if pod := inventory.PodOf(s); pod != "" && s.State == v1alpha1.StateQuarantined {
		parts = append(parts, pod)
	}
	if s.Previous != nil && s.Previous.Node != "" {
		parts = append(parts, "node "+s.Previous.Node)
	}
	return cmp.Or(strings.Join(parts, " on "), "an unknown holder")
}

func holder(s *v1alpha1.IPLeaseSpec) string {
	if pod := inventory.PodOf(s); pod != "" {
		return pod + ", interface " + cmp.Or(s.Holder.Interface, "unknown")
	}
	return "no pod"
}
