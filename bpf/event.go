// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"net"
	"time"
)

// EventType is the kind of an Event.
type EventType uint16

// Types of events. The kernel limits the rate of each per address. State also counts the suppressed
// events.
const (
	// EventHit: a MAC that is not the lease's uses a watched or held address.
	EventHit EventType = 1
	// EventFenced: a claim has fenced an address held here. Never suppressed, once per greater
	// token.
	EventFenced EventType = 2
	// EventAck: another kernel has acknowledged a claim of this node with Token.
	EventAck EventType = 3
	// EventOldClaim: an authentic claim with an older token for an address held here. The agent
	// answers with its own.
	EventOldClaim EventType = 4
	// EventSource: a pod sent a frame against its source guard; see Event.Offence. At most one a second
	// for each slot and result.
	EventSource EventType = 5
)

func (t EventType) String() string {
	switch t {
	case EventHit:
		return "hit"
	case EventFenced:
		return "fenced"
	case EventAck:
		return "ack"
	case EventOldClaim:
		return "old-claim"
	case EventSource:
		return "source"
	}
	return fmt.Sprintf("event-%d", uint16(t))
}

// Where is the program that saw a frame.
type Where uint16

// Programs, as they appear in events and counters.
const (
	WhereGuardIngress    Where = 0
	WhereGuardEgress     Where = 1
	WhereObserverIngress Where = 2
	WhereObserverEgress  Where = 3
)

func (w Where) String() string {
	switch w {
	case WhereGuardIngress:
		return "guard-ingress"
	case WhereGuardEgress:
		return "guard-egress"
	case WhereObserverIngress:
		return "observer-ingress"
	case WhereObserverEgress:
		return "observer-egress"
	}
	return fmt.Sprintf("where-%d", uint16(w))
}

// Event is one report of the kernel. Events may be lost under load, fences never are.
type Event struct {
	Type  EventType
	Key   Key
	Token uint64 // of the claim or ack; 0 for a hit; the slot for EventSource
	Mine  uint64 // token of the lease installed here; the offence for EventSource
	// MAC is the frame's speaker: ARP sender, NA's link-layer option, else the Ethernet source.
	MAC   net.HardwareAddr
	Kind  Kind          // of a hit
	At    time.Duration // CLOCK_BOOTTIME
	Where Where
}
