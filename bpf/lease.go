package bpf

import (
	"fmt"
	"net"
	"net/netip"
)

// Key names a lease in the kernel: an address on one segment. Equal addresses on unconnected parents are apart.
type Key struct {
	// Segment is the ifindex of the parent.
	Segment uint32
	// Addr is an IPv4 or IPv6 address without zone.
	Addr netip.Addr
}

func (k Key) String() string { return fmt.Sprintf("%s on segment %d", k.Addr, k.Segment) }

// Lease is what the kernel has to know of a lease: who may speak for its address, and since which token.
type Lease struct {
	// Token is the fencing token. Claims with a greater one fence the address.
	Token uint64
	// Network is the cluster-wide network the address belongs to; claims of another network do not concern it.
	Network uint64
	// Slot is the guard that may speak for the address; 0 means watched, not held here.
	Slot uint32
	// MAC is the holder's, 6 bytes; empty for a watched address, so that every speaker is a hit.
	MAC net.HardwareAddr
	// Flags refine the checks.
	Flags LeaseFlags
}

// LeaseFlags refine how the kernel treats a lease.
type LeaseFlags uint32

// FlagSharedMAC says that old and new holder share one MAC, so a MAC tells nobody apart.
const FlagSharedMAC LeaseFlags = 1 << 0
