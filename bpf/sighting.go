package bpf

import (
	"net"
	"time"
)

// Sighting is who was last seen speaking for an address on a segment: a hint, the kernel forgets the oldest.
type Sighting struct {
	// MAC spoke for the address at LastSeen, by a frame of Kind; zero LastSeen: nobody did.
	MAC      net.HardwareAddr
	LastSeen time.Duration
	Kind     Kind
	// ProbeMAC asked for the address at LastProbe (ARP probe, DAD), kept apart as it need not own it.
	ProbeMAC  net.HardwareAddr
	LastProbe time.Duration
}
