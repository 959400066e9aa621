// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"net"
	"time"
)

// EventType is the kind of an Event.
type EventType uint16

// Types of events. The kernel limits the rate of hits, repeated acks and old claims for each address.
// State counts hits and probes.
const (
	// EventHit: a MAC that is not the lease's uses a watched or held address.
	EventHit = EventType(observerEventTypeEVENT_HIT)
	// EventFenced: a claim has fenced an address held here. Never suppressed, once per greater
	// token.
	EventFenced = EventType(observerEventTypeEVENT_FENCED)
	// EventAck: another kernel has acknowledged a claim of this node with Token.
	EventAck = EventType(observerEventTypeEVENT_ACK)
	// EventOldClaim: an authentic claim with an older token for an address held here. The agent
	// answers with its own.
	EventOldClaim = EventType(observerEventTypeEVENT_OLD_CLAIM)
	// EventSource: a pod sent a frame against its source guard (Event.Offence). At most one a second
	// for each slot, result and mode.
	EventSource = EventType(observerEventTypeEVENT_SOURCE)
	// EventTurn: a pod announces an address of which another one has the turn (FlagTurns). The frame was
	// dropped. State has the last one as a hit at WhereGuardEgress.
	EventTurn = EventType(observerEventTypeEVENT_TURN)
)

func (t EventType) String() string { return nameOf(eventNames, t, "event") }

var eventNames = map[EventType]string{
	EventHit: "hit", EventFenced: "fenced", EventAck: "ack", EventOldClaim: "old-claim", EventSource: "source", EventTurn: "turn",
}

// Where is the program that saw a frame.
type Where uint16

// Programs, as they appear in events and counters.
const (
	WhereGuardIngress    = Where(observerWhereGUARD_INGRESS)
	WhereGuardEgress     = Where(observerWhereGUARD_EGRESS)
	WhereObserverIngress = Where(observerWhereOBSERVER_INGRESS)
	WhereObserverEgress  = Where(observerWhereOBSERVER_EGRESS)
)

func (w Where) String() string { return nameOf(whereNames, w, "where") }

var whereNames = map[Where]string{
	WhereGuardIngress: "guard-ingress", WhereGuardEgress: "guard-egress",
	WhereObserverIngress: "observer-ingress", WhereObserverEgress: "observer-egress",
}

// Event is one report of the kernel. Events may be lost under load, fences never are.
type Event struct {
	Type  EventType
	Key   Key
	Token uint64 // of the claim or ack; 0 for a hit; the slot for EventSource and EventTurn
	Mine  uint64 // token of the lease installed here; the offence for EventSource
	// MAC is the frame's speaker: ARP sender, NA's link-layer option, else the Ethernet source.
	MAC  net.HardwareAddr
	Kind Kind // of a hit
	// Announces: nobody asked for the frame of a hit: a gratuitous ARP, or an NA to all nodes.
	Announces bool
	At        time.Duration // CLOCK_BOOTTIME
	Where     Where
}
