// SPDX-License-Identifier: Apache-2.0

//go:build kernel

package nodes_test

import (
	"errors"

	"github.com/fenceline/fenceline/agent/journal"
	"github.com/fenceline/fenceline/test/nodes"
)

// step is a point of a verb at which a fault may strike.
type step struct {
	name string
	// The nth moment of this kind shows a bystander that the verb has reached the step.
	at  nodes.Moment
	nth int
	// journal is the phase of the sandbox in the journal by then.
	journal journal.Phase
	// guarded: the guard enforces by then. At the first write, the test waits for it.
	guarded bool
}

// verb is a call of the plugin with its steps in order.
type verb struct {
	name string
	// kept: the pod keeps its name and its address. warm: a Warm lease is ready.
	kept, warm bool
	isDel      bool
	steps      []step
}

const none journal.Phase = ""

// isFirstWrite reports whether the agent may still be attaching the guard at this step.
func (s step) isFirstWrite() bool {
	return s.nth == 1 && (s.at == nodes.CreateSent || s.at == nodes.UpdateSent)
}

// verbs returns the crash points of each verb.
func verbs() []verb {
	return []verb{
		{name: "ADD", steps: []step{
			{"the call arrives", nodes.AddCalled, 1, none, false},
			{"the intent is journalled", nodes.CreateSent, 1, journal.Intent, false},
			{"the guard enforces", nodes.CreateSent, 1, journal.Intent, true},
			{"the lease is created and the agent does not know", nodes.CreateDone, 1, journal.Intent, false},
			{"the address is probed", nodes.Probed, 1, journal.Intent, true},
			{"the address is claimed", nodes.Claimed, 1, journal.Intent, true},
			{"the binding is journalled and the answer written", nodes.AddAnswered, 1, journal.Bound, true},
			{"the pod speaks", nodes.Announced, 1, journal.Bound, true},
		}},
		{name: "ADD of a kept address", kept: true, steps: []step{
			{"the call arrives", nodes.AddCalled, 1, none, false},
			{"the intent is journalled", nodes.UpdateSent, 1, journal.Intent, false},
			{"the lease is taken over and the agent does not know", nodes.UpdateDone, 1, journal.Intent, false},
			{"the address is claimed", nodes.Claimed, 1, journal.Intent, true},
			{"the address is probed", nodes.Probed, 1, journal.Intent, true},
			{"the take-over is about to be confirmed", nodes.UpdateSent, 2, journal.Intent, true},
			{"the take-over is confirmed and the agent does not know", nodes.UpdateDone, 2, journal.Intent, true},
			{"the binding is journalled and the answer written", nodes.AddAnswered, 1, journal.Bound, true},
		}},
		{name: "DEL", isDel: true, steps: []step{
			{"the call arrives", nodes.DelCalled, 1, journal.Bound, true},
			{"the release is journalled", nodes.GetSent, 1, journal.Releasing, true},
			{"the lease is about to be deleted", nodes.DeleteSent, 1, journal.Releasing, true},
			{"the lease is deleted and the agent does not know", nodes.DeleteDone, 1, journal.Releasing, true},
			{"the entry is forgotten and the answer written", nodes.DelAnswered, 1, none, false},
		}},
		{name: "DEL of a kept address", kept: true, isDel: true, steps: []step{
			{"the call arrives", nodes.DelCalled, 1, journal.Bound, true},
			{"the release is journalled", nodes.GetSent, 1, journal.Releasing, true},
			{"the lease is about to be Retained", nodes.UpdateSent, 1, journal.Releasing, true},
			{"the lease is Retained and the agent does not know", nodes.UpdateDone, 1, journal.Releasing, true},
			{"the entry is forgotten and the answer written", nodes.DelAnswered, 1, none, false},
		}},
	}
}

// fault is something that breaks at a step.
type fault struct {
	name string
	// strike causes the fault. Its error closes the connection on which the step was seen.
	strike func(*nodes.Node) error
	// at reports whether the fault can strike there.
	at func(verb, step) bool
	// undone is the undoer of an ADD before its DEL.
	undone undoer
}

// undoer undoes an ADD whose answer reached nobody.
type undoer int

const (
	byNobody undoer = iota
	byTheAgent
	byTheNext
)

// answered reports whether the agent may believe that the plugin got its answer: the end of a plugin
// is noticed a moment later, and the agent does not wait after the confirmation of a take-over. A
// Warm address is claimed after the answer.
func answered(v verb, s step) bool {
	return s.at == nodes.AddAnswered || s.at == nodes.Announced || s.at == nodes.UpdateDone && s.nth == 2 || v.warm && s.at == nodes.Claimed
}

const pluginKilled = "the plugin is killed"

var errCut = errors.New("cut")

func faults() []fault {
	waits := func(v verb, s step) bool { return s.at != nodes.Announced && !(v.warm && s.at == nodes.Claimed) }
	return []fault{
		{"the agent is killed", (*nodes.Node).KillAgent, func(v verb, _ step) bool { return !v.kept || v.isDel }, byNobody},
		{"the agent is killed and starts again before the DEL", (*nodes.Node).KillAgent, func(v verb, _ step) bool { return !v.isDel }, byTheNext},
		{pluginKilled, (*nodes.Node).KillPlugins, waits, byTheAgent},
		{"the connection is closed", func(n *nodes.Node) error { n.CloseConnections(); return nil }, func(v verb, s step) bool {
			return !v.kept && !v.warm && waits(v, s) // to the agent it is the same as the plugin's end
		}, byTheAgent},
		{"the connection to the API server is closed", func(*nodes.Node) error { return errCut }, func(_ verb, s step) bool { return ofAPI(s) }, byTheAgent},
	}
}

func ofAPI(s step) bool {
	switch s.at {
	case nodes.GetSent, nodes.CreateSent, nodes.CreateDone, nodes.UpdateSent, nodes.UpdateDone, nodes.DeleteSent, nodes.DeleteDone:
		return true
	}
	return false
}

func isSent(m nodes.Moment) bool {
	return m == nodes.CreateSent || m == nodes.UpdateSent || m == nodes.DeleteSent
}
