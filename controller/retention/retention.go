// SPDX-License-Identifier: Apache-2.0

// Package retention decides how long the address of a StatefulSet's pod is kept for the next pod of
// the same name. The decision is a pure function.
package retention

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Owner is the knowledge about the StatefulSet that owns a holder. The zero Owner is unknown, and an
// unknown owner ends no retention (R11).
type Owner struct {
	Known  bool
	Exists bool
	// Start and Replicas are the ordinals that the StatefulSet wants: Start <= ordinal < Start+Replicas.
	Start, Replicas int32
	// Asked is the retention in the annotations of the template now; nil if there is none.
	Asked *v1alpha1.LeaseRetention
	// Unreadable is the fault of these annotations; empty if they are valid.
	Unreadable string
}

// End is the end of a retention. With a zero At the retention has no known end.
type End struct {
	At  time.Time
	Why string
}

// Of returns the end of the retention of a Retained lease. limit is the pool's retention.max; 0 means
// no limit. The retention is over if its end is at or before now.
func Of(spec *v1alpha1.IPLeaseSpec, owner Owner, limit time.Duration, now time.Time) End {
	end := byPolicy(spec, owner, now)
	if limit <= 0 || spec.Since.IsZero() {
		return end
	}
	capped := spec.Since.Add(limit)
	if end.At.IsZero() || capped.Before(end.At) {
		return End{At: capped, Why: fmt.Sprintf("the pool retains no address longer than %s", limit)}
	}
	return end
}

// byPolicy returns the end by the annotations in the StatefulSet's template, so a change of them
// counts at once. If the StatefulSet is gone, the annotations that the lease recorded count. With
// every policy, a name that the StatefulSet wants keeps its address.
func byPolicy(spec *v1alpha1.IPLeaseSpec, owner Owner, now time.Time) End {
	if spec.Holder == nil || !owner.Known {
		return End{Why: "its StatefulSet is not known"}
	}
	unowned, known := whyUnowned(spec.Holder, owner)
	if !known || unowned == "" {
		return End{Why: "its StatefulSet wants the pod"}
	}
	if owner.Exists && owner.Unreadable != "" {
		return End{Why: owner.Unreadable}
	}
	asked := spec.Retention
	if owner.Exists {
		asked = owner.Asked
	}
	switch {
	case asked == nil || asked.Policy == v1alpha1.RetainWhileOwned || asked.Policy == v1alpha1.RetainNone:
		return End{At: now, Why: unowned}
	case asked.Policy == v1alpha1.RetainFor && asked.Duration != nil && !spec.Since.IsZero():
		return End{At: spec.Since.Add(asked.Duration.Duration),
			Why: fmt.Sprintf("%s, and the address is kept for %s after its pod", unowned, asked.Duration.Duration)}
	default:
		return End{Why: "the address is kept until an operator deletes the lease"}
	}
}

// whyUnowned returns why the StatefulSet does not want the holder's pod, or "" if it does. known is
// false if the pod's name has no ordinal.
func whyUnowned(holder *v1alpha1.Holder, owner Owner) (why string, known bool) {
	if !owner.Exists {
		return fmt.Sprintf("StatefulSet %s/%s does not exist", holder.Namespace, holder.OwnerName), true
	}
	ordinal, ok := Ordinal(holder.Pod, holder.OwnerName)
	if !ok {
		return "", false
	}
	// These are int64, because start + replicas may exceed an int32.
	first, end := int64(owner.Start), int64(owner.Start)+int64(owner.Replicas)
	switch {
	case ordinal >= first && ordinal < end:
		return "", true
	case first == end:
		return fmt.Sprintf("StatefulSet %s/%s wants no pod", holder.Namespace, holder.OwnerName), true
	default:
		return fmt.Sprintf("StatefulSet %s/%s wants the ordinals from %d to %d only", holder.Namespace, holder.OwnerName, first, end-1), true
	}
}

// Ordinal returns the ordinal in the name of a StatefulSet's pod. It reports whether there is one.
func Ordinal(pod, statefulSet string) (int64, bool) {
	digits, ok := strings.CutPrefix(pod, statefulSet+"-")
	if !ok {
		return 0, false
	}
	ordinal, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || strconv.FormatUint(ordinal, 10) != digits {
		return 0, false
	}
	return int64(ordinal), true
}
