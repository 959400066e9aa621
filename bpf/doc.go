// Package bpf loads, attaches and pins Fenceline's kernel programs and gives Go access to their maps.
//
// Guards sit on a pod's interface, observers on a segment's parent. Both keep enforcing from their pins on the
// host's bpffs when the process that loaded them is gone. All times are CLOCK_BOOTTIME, as offsets from boot.
//
// Two maps hold what is known of an address, split by writer: leases is written by this package only, state by
// the kernel only (this package creates and removes its entries). An address is fenced while the greatest token
// claimed for it on the wire exceeds the token of its lease.
//
// Keep in sync: the structs of lease.h, state.h, slot.h, sighting.h and event.h with their Go counterparts
// (bpf2go generates those from BTF; `make generate`), and claim.h with the frame codec of agent/claim.
package bpf
