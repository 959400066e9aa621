/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Counters: what the programs did with the frames that they judged. */
#ifndef FENCELINE_COUNTER_H
#define FENCELINE_COUNTER_H

#include "kernel.h"

/* Which program. */
enum where {
	GUARD_INGRESS,
	GUARD_EGRESS,
	OBSERVER_INGRESS,
	OBSERVER_EGRESS,
	WHERE_MAX,
};

/* counter.go documents them. */
enum result {
	CLAIM = 0,
	CLAIM_SHORT = 1,
	CLAIM_MAGIC = 2,
	CLAIM_FOREIGN = 3,
	CLAIM_NOT_HELD = 4,
	CLAIM_FORGED = 5,
	CLAIM_OLD = 6,
	CLAIM_EQUAL = 7,
	CLAIM_FENCED = 8,
	CLAIM_AGAIN = 9,
	ACK_SENT = 10,
	ACK = 11,
	ACK_UNASKED = 12,
	CLAIM_FROM_POD = 13,
	CLAIM_BEYOND = 14,

	ALLOWED = 15, /* never counted */

	DROP_FENCED = 16,
	DROP_DEAD = 17,
	DROP_SLOT = 18,
	DROP_MAC = 19,
	DROP_UNLEASED = 20,
	DROP_MALFORMED = 21,
	CLAIM_DISPROVED = 22,

	HIT = 24,
	SIGHTING = 25,
	REFLECTED = 26,
	SUPPRESSED = 27,
	EVENT_LOST = 28,
	MALFORMED = 29,

	DROP_ETHER = 32,
	DROP_SENDER_MAC = 33,
	DROP_LINK_LOCAL = 34,
	DROP_UNSPECIFIED = 35,
	DROP_ROUTER = 36,
	DROP_DHCP_SERVER = 37,
	DROP_TAGGED = 38,
	DROP_BRIDGE = 39,
	DROP_STRANGER = 40,
	DROP_TURN = 41,
	OBSERVED = 48,
	RESULT_MAX = 64,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WHERE_MAX *RESULT_MAX);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(enum where where, enum result result)
{
	__u32 index = where * RESULT_MAX + result;
	__u64 *n = bpf_map_lookup_elem(&counters, &index);

	if (n)
		(*n)++;
}

/* Counts the reason and returns DROP. */
static __always_inline int drop(enum where where, enum result why)
{
	count(where, why);
	return DROP;
}

#endif
