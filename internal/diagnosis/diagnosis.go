// SPDX-License-Identifier: Apache-2.0

// Package diagnosis has the types of an agent's answers about its node: JSON, which the agent's commands
// diagnose and host-local print. The second one reads the files of host-local, and writes those of a move.
package diagnosis

import (
	"net/netip"
	"time"
)

// MaxQuestions is the greatest number of questions of a request. Each may take a second.
const MaxQuestions = 64

// Request asks an agent about its node.
type Request struct {
	// Questions are addresses for which the agent asks the wire.
	Questions []Question `json:"questions,omitempty"`
}

// Question is an address to ask for on a parent.
type Question struct {
	Address netip.Addr `json:"address"`
	Parent  string     `json:"parent"`
}

// Answer is the answer to a Question. If Error is not empty, nothing was found out.
type Answer struct {
	Question
	// MAC is that of the host that answered. It is empty if none did.
	MAC string `json:"mac,omitempty"`
	// OfNode: an interface of the node itself has the address, so the wire was not asked.
	OfNode bool   `json:"ofNode,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Report is an agent's answer about its node.
type Report struct {
	Node    string    `json:"node"`
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
	// Kernel is the release of the kernel. TCX: the guards are in tcx (Linux 6.6). Without it they are
	// filters of a clsact qdisc.
	Kernel string `json:"kernel"`
	TCX    bool   `json:"tcx"`
	// NotReady is the reason for which an ADD would fail for every pod, or empty.
	NotReady string   `json:"notReady,omitempty"`
	Parents  []Parent `json:"parents"`
	// Misplaced are the pods that a new ADD would not put where they run.
	Misplaced []Misplaced `json:"misplaced,omitempty"`
	// Named are the interfaces that the pools of the node and the settings of its agent name. It is nil
	// if that is not known.
	Named []Named `json:"named"`
	// ForwardingOff are the families, ipv4 and ipv6, for which the node does not forward.
	ForwardingOff []string `json:"forwardingOff,omitempty"`
	// Configuration is the network configuration that the runtime uses for the first interface of pods:
	// the first file by name. OwnConfiguration is that of the chart, or empty.
	Configuration    string   `json:"configuration,omitempty"`
	OwnConfiguration string   `json:"ownConfiguration,omitempty"`
	Answers          []Answer `json:"answers,omitempty"`
}

// Misplaced are pods on a parent. Why and Do are clauses: the reason for which a new pod would not come
// there, and the remedy.
type Misplaced struct {
	Parent string   `json:"parent"`
	Pods   []string `json:"pods"`
	Why    string   `json:"why"`
	Do     string   `json:"do"`
}

// Named is the name of an interface that a pool or a setting (Of) gives.
type Named struct {
	Of     string `json:"of"`
	Name   string `json:"name"`
	Exists bool   `json:"exists"`
}

// Parent is a parent on which the agent listens.
type Parent struct {
	Name string `json:"name"`
	MAC  string `json:"mac"`
	// Carrier: the link is up. Observed: the agent hears its frames.
	Carrier  bool `json:"carrier"`
	Observed bool `json:"observed"`
	// Deaf: silence there proves nothing. Mute: no other host answered the last question.
	Deaf bool `json:"deaf,omitempty"`
	Mute bool `json:"mute,omitempty"`
	// Hazards may keep frames of the parent from the agent, or change them.
	Hazards []string `json:"hazards,omitempty"`
}
