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

static __always_inline __u64 *hearing_own(void)
{
	__u32 key = segment;

	return bpf_map_lookup_elem(&hearing, &key);
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

/* Records that an authentic frame came in at now. */
static __always_inline void hearing_note(const struct mac *from,
					 const struct parent *parent, __u64 now)
{
	__u64 *heard = hearing_own();

	if (heard && !hearing_is_echo(from, parent) && !hearing_is_local(from))
		*heard = now;
}

/*
 * For a claim of an address that is not held here. A node receives every claim
 * of the segment, so the tag is verified only when the last evidence has aged.
 * The address can be asked later whether it hears this node.
 */
static __always_inline void hearing_check(const struct claim *c,
					  const struct lease_key *key,
					  const struct mac *from,
					  const struct parent *parent,
					  enum where where)
{
	__u64 now = bpf_ktime_get_boot_ns();
	__u64 *heard = hearing_own();

	if (!heard || now - *heard < HEARING_INTERVAL_NS ||
	    hearing_is_echo(from, parent) || hearing_is_local(from))
		return;
	if (claim_verify(c) == CLAIM_NO_KEY) {
		count(where, CLAIM_FORGED);
		return;
	}
	*heard = now;
	sighting_claimed(key, from, now);
}

#endif
