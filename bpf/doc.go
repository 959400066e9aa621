// SPDX-License-Identifier: Apache-2.0

// Package bpf opens Fenceline's kernel programs with the pins of earlier processes and gives Go
// access to their maps.
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
// Read src in this order: slot.h, lease.h, state.h and gate.h (maps); claim.h, fence.h, ingress.h,
// ack.h and uplink.h (claims); speech.h, source.h, judge.h, local.h, usual.h, sender.h and stranger.h (frames);
// guard.c and observer.c (programs). sockets.c stands alone.
//
// Structs, enums and sizes come from the C code by its BTF (bpf2go, `make generate`). Keep in sync:
// claim.h with the codec of agent/segment/claim, which a test compares.
package bpf

// The compiler is pinned: another version writes other objects, and `make verify` compares them byte by byte.
//
//go:generate go tool bpf2go -target bpfel -cc clang-14 -strip llvm-strip-14 -cflags "-O2 -g -Wall -Wextra -Werror -nostdinc -Isrc/headers -Isrc -mcpu=v3" -type lease_key -type lease -type state -type slot -type source_key -type source_mac -type offence_key -type offence -type local_key -type parent -type sighting -type event -type claim_key -type event_type -type kind -type lease_flag -type local_index_entry -type local_segment -type local_slot -type network_limit -type parent_flag -type probe -type result -type slot_flag -type slot_limit -type slot_status -type source_family -type source_flag -type source_prefix -type where observer src/observer.c
//go:generate go tool bpf2go -target bpfel -cc clang-14 -strip llvm-strip-14 -cflags "-O2 -g -Wall -Wextra -Werror -nostdinc -Isrc/headers -Isrc -mcpu=v3" -type guard_program guard src/guard.c
//go:generate go tool bpf2go -target bpfel -cc clang-14 -strip llvm-strip-14 -cflags "-O2 -g -Wall -Wextra -Werror -nostdinc -Isrc/headers -Isrc -mcpu=v3" -type socket_flag -type socket_guard sockets src/sockets.c
//go:generate clang-14 -target bpfel -O2 -g -Wall -Wextra -Werror -nostdinc -Isrc/headers -Isrc -mcpu=v3 -fdebug-compilation-dir=. -c testdata/siphash.c -o testdata/siphash.o
//go:generate llvm-strip-14 -g testdata/siphash.o
