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

func byPolicy(spec *v1alpha1.IPLeaseSpec, owner Owner, now time.Time) End {
	policy := v1alpha1.RetainWhileOwned
	if spec.Retention != nil && spec.Retention.Policy != "" {
		policy = spec.Retention.Policy
	}
	switch policy {
	case v1alpha1.RetainFor:
		if spec.Retention.Until == nil {
			return End{}
		}
		return End{At: spec.Retention.Until.Time, Why: "the time of its retention is over"}
	case v1alpha1.RetainWhileOwned:
		return whileOwned(spec.Holder, owner, now)
	default:
		return End{}
	}
}

func whileOwned(holder *v1alpha1.Holder, owner Owner, now time.Time) End {
	if holder == nil || !owner.Known {
		return End{}
	}
	if !owner.Exists {
		return End{At: now, Why: fmt.Sprintf("StatefulSet %s/%s does not exist", holder.Namespace, holder.OwnerName)}
	}
	ordinal, ok := Ordinal(holder.Pod, holder.OwnerName)
	if !ok {
		return End{}
	}
	// int64, because start + replicas may exceed an int32.
	end := int64(owner.Start) + int64(owner.Replicas)
	if ordinal >= int64(owner.Start) && ordinal < end {
		return End{}
	}
	return End{At: now, Why: fmt.Sprintf("StatefulSet %s/%s wants the ordinals from %d to %d only",
		holder.Namespace, holder.OwnerName, owner.Start, end-1)}
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
