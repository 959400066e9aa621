/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hearing: evidence that frames of other nodes reach this segment (R2, R3). */
#ifndef FENCELINE_HEARING_H
#define FENCELINE_HEARING_H

#include "claim.h"
#include "counter.h"
#include "parent.h"
#include "sighting.h"

/* A claim refreshes the evidence at most once per interval. */
#define HEARING_INTERVAL_NS 1000000000ULL

/*
 * When a valid claim or ack of another node last came in, CLOCK_BOOTTIME in ns,
 * by the parent's ifindex. User space creates the entry, the kernel writes it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PARENTS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} hearing SEC(".maps");

/*
 * By the remainder of the segment: the segment in the high half, and in the low
 * half the jiffy in which its evidence was found to be fresh. Within that jiffy
 * nothing needs to be looked up again.
 */
#define HEARING_FRESH 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HEARING_FRESH);
	__type(key, __u32);
	__type(value, __u64);
} hearing_fresh SEC(".maps");

static __always_inline volatile __u64 *hearing_fresh_of(__u32 segment)
{
	__u32 at = segment % HEARING_FRESH;

	return bpf_map_lookup_elem(&hearing_fresh, &at);
}

static __always_inline __u64 hearing_this_jiffy(__u32 segment)
{
	return (__u64)segment << 32 | (__u32)bpf_jiffies64();
}

static __always_inline __u64 *hearing_of(__u32 segment)
{
	return bpf_map_lookup_elem(&hearing, &segment);
}

/* Some switches return our own frames, which prove nothing. */
static __always_inline bool hearing_is_echo(const struct mac *from,
					    const struct parent *parent)
{
	return parent && mac_equal(from, &parent->mac);
}

/* Two parents of this node on one segment hear each other. */
static __always_inline bool hearing_is_local(const struct mac *from)
{
	return bpf_map_lookup_elem(&own_macs, from);
}

/* Records that an authentic frame came in. */
static __always_inline void hearing_note(__u32 segment, const struct mac *from,
					 const struct parent *parent)
{
	volatile __u64 *fresh = hearing_fresh_of(segment);
	__u64 jiffy = hearing_this_jiffy(segment);
	__u64 *heard;

	if (!fresh || *fresh == jiffy)
		return;
	heard = hearing_of(segment);
	if (!heard || hearing_is_echo(from, parent) || hearing_is_local(from))
		return;
	*heard = bpf_ktime_get_boot_ns();
	*fresh = jiffy;
}

/*
 * For a claim of an address that is not held here. A node receives every claim
 * of the segment, so the tag is verified only when the last evidence has aged.
 * Later the agent may ask this address whether it hears this node.
 */
static __always_inline void hearing_check(const struct claim *c,
					  const struct lease_key *key,
					  const struct mac *from,
					  const struct parent *parent,
					  enum where where)
{
	volatile __u64 *fresh = hearing_fresh_of(key->segment);
	__u64 jiffy = hearing_this_jiffy(key->segment);
	__u64 *heard, now;

	if (!fresh || *fresh == jiffy)
		return;
	heard = hearing_of(key->segment);
	now = bpf_ktime_get_boot_ns();
	if (!heard || hearing_is_echo(from, parent) || hearing_is_local(from))
		return;
	if (now - *heard >= HEARING_INTERVAL_NS) {
		if (claim_verify(c) == CLAIM_NO_KEY) {
			count(where, CLAIM_FORGED);
			return;
		}
		*heard = now;
		sighting_claimed(key, from, now);
	}
	*fresh = jiffy;
}

#endif
