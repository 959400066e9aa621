package bpf

import (
	"net"
	"time"
)

// State is what the kernel has learnt from the wire about one leased or watched address.
type State struct {
	// MaxToken is the greatest token that a valid claim carried; the address is fenced while it exceeds the lease's.
	MaxToken uint64
	// AckedToken is the greatest token another kernel has acknowledged, AckMAC the parent it answered from.
	AckedToken uint64
	AckMAC     net.HardwareAddr
	// LastHit is when somebody else last spoke for the address (0: never), HitMAC who, HitKind how, Hits how often.
	LastHit time.Duration
	HitMAC  net.HardwareAddr
	HitKind Kind
	Hits    uint64
	// LastProbe, ProbeMAC, ProbeKind and Probes say the same of tentative frames (ARP probe, DAD): asking for an
	// address is not speaking for it, and a device that tracks hosts probes too.
	LastProbe time.Duration
	ProbeMAC  net.HardwareAddr
	ProbeKind Kind
	Probes    uint64
}
