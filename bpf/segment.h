/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Segments: the parents with an observer. */
#ifndef FENCELINE_SEGMENT_H
#define FENCELINE_SEGMENT_H

#include "lease.h"

#define SEGMENTS_MAX 1024

/* How fresh the evidence of hearing is kept. */
#define HEARING_INTERVAL_NS 1000000000ULL

/* Written by user space. */
struct parent {
	struct mac mac; /* the parent's */
	__u16 flags;
};

/* The parent is a bridge port: what it hears is for others as well. */
#define PARENT_BRIDGE_PORT (1 << 0)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEGMENTS_MAX);
	__type(key, __u32);
	__type(value, struct parent);
} parents SEC(".maps");

/* The MACs of all parents. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEGMENTS_MAX);
	__type(key, struct mac);
	__type(value, __u8);
} own_macs SEC(".maps");

/*
 * Written by the kernel: when a valid claim or ack from another node was last
 * heard, CLOCK_BOOTTIME in ns. R2: without it, silence proves nothing.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SEGMENTS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} hearing SEC(".maps");

static __always_inline const struct parent *parent_own(void)
{
	__u32 key = segment;

	return bpf_map_lookup_elem(&parents, &key);
}

static __always_inline __u64 *segment_hearing(void)
{
	__u32 key = segment;

	return bpf_map_lookup_elem(&hearing, &key);
}

#endif
