/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Parents: the devices with an observer. Written by user space only. */
#ifndef FENCELINE_PARENT_H
#define FENCELINE_PARENT_H

#include "mac.h"

#define PARENTS_MAX 1024

struct parent {
	struct mac mac;
	__u16 flags;
};

enum parent_flag {
	PARENT_BRIDGE_PORT = 1 << 0,
	PARENT_EXCLUSIVE = 1 << 1, /* strangers send nothing */
};

/* By ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PARENTS_MAX);
	__type(key, __u32);
	__type(value, struct parent);
} parents SEC(".maps");

/* The MACs of all parents; the value is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PARENTS_MAX);
	__type(key, struct mac);
	__type(value, __u8);
} own_macs SEC(".maps");

/* The parent of a segment; NULL until user space describes it. */
static __always_inline const struct parent *parent_of(__u32 segment)
{
	return bpf_map_lookup_elem(&parents, &segment);
}

#endif
