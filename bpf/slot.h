/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Slots: the guards of this node. Written by user space only. */
#ifndef FENCELINE_SLOT_H
#define FENCELINE_SLOT_H

#include "kernel.h"

#define SLOTS_MAX 16384

enum slot_status {
	SLOT_FREE,
	SLOT_ALIVE,
	SLOT_DEAD,
};

/* The parameters for loading the guard's programs again. */
struct slot {
	__u32 status;
	__u32 segment;
	__u32 flags;
	__u32 netns; /* inode: ifindexes are unique only within it */
};

#define SLOT_VERIFY	  (1 << 0)
#define SLOT_SOURCE_GUARD (1 << 1)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS_MAX);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

static __always_inline bool slot_is_dead(__u32 index)
{
	const struct slot *s = bpf_map_lookup_elem(&slots, &index);

	return s && s->status == SLOT_DEAD;
}

#endif
