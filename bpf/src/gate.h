/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The gate of the checks. While it is open, each frame's addresses are looked
 * up: an address may be fenced, or a slot is dead. While it is shut, data
 * passes without them.
 */
#ifndef FENCELINE_GATE_H
#define FENCELINE_GATE_H

#include "kernel.h"

/*
 * The gate is shut while both counts are equal. Each has one writer. The kernel
 * counts fences in GATE_RAISED. User space reads that count, checks that
 * nothing is fenced, and writes the count to GATE_SETTLED. A fence in between
 * makes them differ, so none is lost. To open the gate, user space writes a
 * count that the kernel never reaches.
 */
enum gate_count {
	GATE_RAISED,
	GATE_SETTLED,
	GATE_COUNTS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GATE_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} gate SEC(".maps");

static __always_inline bool gate_is_open(void)
{
	__u32 raised = GATE_RAISED, settled = GATE_SETTLED;
	const __u64 *r = bpf_map_lookup_elem(&gate, &raised);
	const __u64 *s = bpf_map_lookup_elem(&gate, &settled);

	return !r || !s || *r != *s;
}

/* Call it after the token was raised, never before. */
static __always_inline void gate_open(void)
{
	__u32 raised = GATE_RAISED;
	__u64 *r = bpf_map_lookup_elem(&gate, &raised);

	if (r)
		__sync_fetch_and_add(r, 1);
}

#endif
