/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hearing: evidence that a segment lets us hear other nodes (R2, R3). */
#ifndef FENCELINE_HEARING_H
#define FENCELINE_HEARING_H

#include "claim.h"
#include "counter.h"
#include "segment.h"

/* Our own frames come back from some switches and prove nothing. */
static __always_inline bool hearing_is_echo(const struct mac *from,
					    const struct parent *parent)
{
	return parent && mac_equal(from, &parent->mac);
}

/* What another parent of this node sends may come in, and is no other's. */
static __always_inline bool hearing_is_own(const struct mac *from)
{
	return bpf_map_lookup_elem(&own_macs, from);
}

/* An authentic frame was heard at now. */
static __always_inline void hearing_note(const struct mac *from,
					 const struct parent *parent, __u64 now)
{
	__u64 *heard = segment_hearing();

	if (heard && !hearing_is_echo(from, parent) && !hearing_is_own(from))
		*heard = now;
}

/*
 * A claim that concerns nobody here. It is worth verifying only when the last
 * evidence has aged: a node hears every claim of the segment.
 */
static __always_inline void hearing_check(const struct claim *c,
					  const struct mac *from,
					  const struct parent *parent,
					  enum where where)
{
	__u64 now = bpf_ktime_get_boot_ns();
	__u64 *heard = segment_hearing();

	if (!heard || now - *heard < HEARING_INTERVAL_NS ||
	    hearing_is_echo(from, parent) || hearing_is_own(from))
		return;
	if (claim_verify(c) == CLAIM_NO_KEY)
		count(where, CLAIM_FORGED);
	else
		*heard = now;
}

#endif
