/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ceiling: the greatest token that the store can have given. */
#ifndef FENCELINE_CEILING_H
#define FENCELINE_CEILING_H

#include "kernel.h"

/*
 * Written by user space: the newest revision that it knows, and a margin. 0: no
 * revision is known yet, and every token may be right.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} ceiling SEC(".maps");

/*
 * A token above the ceiling is of another store: a copy of the cluster that was
 * restored with a bumped revision has the same networks and the same key.
 */
static __always_inline bool ceiling_is_below(__u64 token)
{
	__u32 zero = 0;
	const __u64 *c = bpf_map_lookup_elem(&ceiling, &zero);

	return c && *c && token > *c;
}

#endif
