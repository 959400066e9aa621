// SPDX-License-Identifier: Apache-2.0

// Package bpf opens Fenceline's kernel programs with the pins of earlier processes and gives Go
// access to their maps. Its subpackages put the programs on devices.
//
// A guard runs on a pod's interface, an observer on a segment's parent. Their pins on the host's
// bpffs keep them enforcing after the process that loaded them has ended. All times are
// CLOCK_BOOTTIME, as offsets from boot.
//
// Two maps hold the facts about an address, one for each writer: only this package writes leases,
// only the kernel writes states (this package creates and removes the entries). A lease is fenced
// while it is flagged as unproven, or while the greatest token claimed on the wire exceeds its token
// and is not disproved (state_fences).
//
// Read src in this order: slot.h, lease.h, state.h and gate.h (maps); claim.h, fence.h, ingress.h and
// ack.h (claims); speech.h, source.h, judge.h, local.h and usual.h (frames); guard.c and observer.c
// (programs).
//
// Structs, enums and sizes come from the C code by its BTF (bpf2go, `make generate`). Keep in sync:
// claim.h with the codec of agent/segment/claim, which a test compares.
package bpf
