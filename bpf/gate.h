/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The gate: shut while nothing is fenced, so that data passes unlooked-up. */
#ifndef FENCELINE_GATE_H
#define FENCELINE_GATE_H

#include "kernel.h"

/*
 * Two counts, each with one writer: the kernel counts fences, user space writes
 * the count it saw before it found nothing fenced. They are equal only if no
 * fence came in between, so shutting the gate cannot lose one. User space opens
 * it by settling on a count that is never reached.
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

/* After the greatest token was raised, never before. */
static __always_inline void gate_open(void)
{
	__u32 raised = GATE_RAISED;
	__u64 *r = bpf_map_lookup_elem(&gate, &raised);

	if (r)
		__sync_fetch_and_add(r, 1);
}

#endif
