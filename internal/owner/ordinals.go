// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Ordinals are the ordinals of the pods that a StatefulSet wants: the first Replicas ordinals from
// Start on that are not reserved. Only OpenKruise has reserved ordinals.
type Ordinals struct {
	Start, Replicas int32
	Reserved        []Range
}

// Range has the ordinals from First to Last, both included.
type Range struct{ First, Last int64 }

// Want reports whether the StatefulSet wants an ordinal.
func (o Ordinals) Want(ordinal int64) bool {
	isReserved := func(r Range) bool { return ordinal >= r.First && ordinal <= r.Last }
	if ordinal < int64(o.Start) || slices.ContainsFunc(o.Reserved, isReserved) {
		return false
	}
	// The place of the ordinal among those that are not reserved.
	return ordinal-int64(o.Start)-o.reservedBelow(ordinal) < int64(o.Replicas)
}

// reservedBelow counts the reserved ordinals from Start on that are less than an ordinal. Ranges may
// overlap.
func (o Ordinals) reservedBelow(ordinal int64) int64 {
	count, from := int64(0), int64(o.Start)
	for from < ordinal {
		// The next range at or behind from.
		next := Range{First: math.MaxInt64}
		for _, r := range o.Reserved {
			if r.Last >= from && r.First <= r.Last && r.First < next.First {
				next = r
			}
		}
		if next.First >= ordinal {
			break
		}
		count += min(next.Last, ordinal-1) - max(next.First, from) + 1
		from = next.Last + 1
	}
	return count
}

// String describes the ordinals for people.
func (o Ordinals) String() string {
	switch {
	case o.Replicas <= 0:
		return "no pod"
	case len(o.Reserved) > 0:
		return fmt.Sprintf("%d pods from ordinal %d on, without its reserveOrdinals", o.Replicas, o.Start)
	}
	// These are int64, because start + replicas may exceed an int32.
	return fmt.Sprintf("the ordinals from %d to %d only", o.Start, int64(o.Start)+int64(o.Replicas)-1)
}

// ParseRange reads an entry of reserveOrdinals: "3", or "3-5".
func ParseRange(text string) (Range, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	f, badFirst := strconv.ParseUint(strings.TrimSpace(first), 10, 31)
	l, badLast := strconv.ParseUint(strings.TrimSpace(last), 10, 31)
	if badFirst != nil || badLast != nil || l < f {
		return Range{}, fmt.Errorf("reserveOrdinals has %q, want an ordinal or a range such as 3-5", text)
	}
	return Range{First: int64(f), Last: int64(l)}, nil
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
