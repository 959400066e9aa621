/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Turns: several pods may speak for an exclusive virtual address, one at a
 * time. The announcement of another one is dropped, and tells the agent that
 * the pod wants the turn.
 */
#ifndef FENCELINE_TURN_H
#define FENCELINE_TURN_H

#include "hit.h"
#include "source.h"

/* Tells the agent who wants the turn. The state keeps it if the event is lost.
 */
__noinline int turn_ask(__u32 slot, __u64 high, __u64 low, __u64 by)
{
	struct suspect who = suspect_of(slot, 0);
	struct addr a = addr_of(high, low);
	struct lease_key key = lease_key_of(who.segment, &a);
	const struct lease *l = lease_of(&key);
	struct state *st = state_of(&key);
	__u64 now = bpf_ktime_get_boot_ns();
	struct event e = {
		.ns = now,
		.token = slot,
		.key = key,
		.type = EVENT_TURN,
		.where = GUARD_EGRESS,
		.by = by,
	};

	if (l && st && l->flags & LEASE_TURNS &&
	    hit_note(st, by, now, GUARD_EGRESS))
		event_send(&e);
	return 0;
}

/* Reports whether only the turn keeps a pod from using an address. */
static __always_inline bool turn_is_missing(enum result why)
{
	return why == DROP_TURN || why == DROP_FENCED;
}

#endif
