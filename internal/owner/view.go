// SPDX-License-Identifier: Apache-2.0

package owner

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// View is the knowledge about an owner whose pods keep their identity.
type View struct {
	Ref Ref
	// Unknown is the reason for which nothing is known, as a clause. It is empty otherwise.
	Unknown string
	// Lack is the same reason in one word, if it lasts until a person acts.
	Lack   Lack
	Exists bool
	// Ordinals are those of a StatefulSet, Machine is the state of a virtual machine.
	Ordinals Ordinals
	Machine  *Machine
	// Annotations are those of the pods that the owner makes.
	Annotations map[string]string
}

// Lack is the reason for which an owner cannot be read.
type Lack string

// The lacks.
const (
	// LackAPI: the API server does not serve the kind.
	LackAPI Lack = "NoAPI"
	// LackRight: the rights of the controller do not cover the kind.
	LackRight Lack = "NoRight"
	// LackScale: the kind has no scale subresource.
	LackScale Lack = "NoScale"
	// LackSense: a field of the owner cannot be read.
	LackSense Lack = "Unreadable"
)

// Lacks returns all lacks.
func Lacks() []Lack { return []Lack{LackAPI, LackRight, LackScale, LackSense} }

// Machine is the state of a KubeVirt virtual machine.
type Machine struct {
	// RunStrategy is spec.runStrategy. If spec.running is used instead, it is Always or Halted.
	RunStrategy string
	// HasInstance is true if the VirtualMachineInstance of the machine exists.
	HasInstance bool
}

// The run strategies that tell by themselves whether the machine wants a pod.
const (
	runAlways = "Always"
	runHalted = "Halted"
)

// Standing is how an owner stands to a pod name, or to the pods of a virtual machine.
type Standing int

const (
	// Unknown: missing data counts as wanted (R11). The zero value.
	Unknown Standing = iota
	// Wanted: the owner wants the pod.
	Wanted
	// Stopped: the virtual machine exists and wants no pod until it is started.
	Stopped
	// Unwanted: the owner exists and wants no pod of this name.
	Unwanted
	// Gone: the owner does not exist.
	Gone
)

// Need is an owner's need of a pod.
type Need struct {
	Standing Standing
	// Why explains the standing, as a clause.
	Why string
}

// Need decides whether the owner wants a pod of a name.
func (v View) Need(pod string) Need {
	switch {
	case v.Unknown != "":
		return Need{Unknown, v.Unknown}
	case v.Ref.Kind == "":
		return Need{Unknown, "its owner is not known"}
	case !v.Exists:
		return Need{Gone, fmt.Sprintf("%s does not exist", v.Ref)}
	case v.Machine != nil:
		return v.Machine.need(v.Ref)
	}
	ordinal, ok := Ordinal(pod, v.Ref.Name)
	if !ok {
		return Need{Unknown, fmt.Sprintf("the name %s has no ordinal of %s", pod, v.Ref)}
	}
	if v.Ordinals.Want(ordinal) {
		return Need{Wanted, fmt.Sprintf("%s wants the pod", v.Ref)}
	}
	return Need{Unwanted, fmt.Sprintf("%s wants %s", v.Ref, v.Ordinals)}
}

func (m Machine) need(r Ref) Need {
	switch {
	case m.HasInstance:
		return Need{Wanted, fmt.Sprintf("%s runs", r)}
	case m.RunStrategy == runAlways:
		return Need{Wanted, fmt.Sprintf("%s is to run", r)}
	case m.RunStrategy == runHalted:
		return Need{Stopped, fmt.Sprintf("%s is halted", r)}
	}
	return Need{Stopped, fmt.Sprintf("%s has no instance, and its run strategy %q does not tell whether it gets one", r, m.RunStrategy)}
}

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
