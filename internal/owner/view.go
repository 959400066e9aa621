// SPDX-License-Identifier: Apache-2.0

package owner

import "fmt"

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
