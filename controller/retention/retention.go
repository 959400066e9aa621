// Package retention decides how long the address of a StatefulSet pod is kept
// for the next pod of the same name. It is pure: facts in, a time out.
package retention

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fenceline/fenceline/apis/v1alpha1"
)

// Owner is what retention asks of the StatefulSet that owns a holder. The zero
// Owner knows nothing, and what is not known ends no retention (R11).
type Owner struct {
	Known  bool
	Exists bool
	// The StatefulSet wants the ordinals Start <= ordinal < Start+Replicas.
	Start, Replicas int32
	// Asked is what the annotations of the template ask for now, nil for nothing.
	Asked *v1alpha1.LeaseRetention
	// Unreadable says what is wrong with these annotations.
	Unreadable string
}

// End is when a retention ends. A zero At means that no end is in sight.
type End struct {
	At  time.Time
	Why string
}

// Of returns the end of the retention of a Retained lease. limit is the pool's
// retention.max; 0 is no limit. An end that has come is at or before now.
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

// byPolicy follows the template of the StatefulSet, so that a change of its
// annotations counts at once; without a StatefulSet, what the lease recorded.
// Whatever the policy, a name that the StatefulSet wants keeps its address.
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
	case asked == nil || asked.Policy == v1alpha1.RetainWhileOwned:
		return End{At: now, Why: unowned}
	case asked.Policy == v1alpha1.RetainFor && asked.Duration != nil && !spec.Since.IsZero():
		return End{At: spec.Since.Add(asked.Duration.Duration),
			Why: fmt.Sprintf("%s, and the address is kept for %s after its pod", unowned, asked.Duration.Duration)}
	default:
		return End{Why: "it is kept until somebody deletes the lease"}
	}
}

// whyUnowned says why the StatefulSet does not want the holder's pod, or "" if
// it does. Known is false where the pod's name tells nothing.
func whyUnowned(holder *v1alpha1.Holder, owner Owner) (why string, known bool) {
	if !owner.Exists {
		return fmt.Sprintf("StatefulSet %s/%s does not exist", holder.Namespace, holder.OwnerName), true
	}
	ordinal, ok := Ordinal(holder.Pod, holder.OwnerName)
	if !ok {
		return "", false
	}
	// int64, because start + replicas may exceed an int32.
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

// Ordinal returns the ordinal in the name of a StatefulSet's pod.
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
