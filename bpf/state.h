/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State: what the wire said of a leased address. Written by the kernel only. */
#ifndef FENCELINE_STATE_H
#define FENCELINE_STATE_H

#include "gate.h"
#include "lease.h"

/* Enough for every other CPU to be in our way at once, many times over. */
#define RAISE_TRIES 64

/* Times are CLOCK_BOOTTIME in nanoseconds, 0 for never. */
struct state {
	__u64 max;	/* greatest token of a valid claim */
	__u64 acked;	/* greatest token of a valid ack */
	__u64 acked_by; /* speaker */
	__u64 hit_ns, hit_by, hits;
	__u64 probe_ns, probe_by, probes;
	/* When each sort of event was last sent, for its rate limit. */
	__u64 hit_event_ns, probe_event_ns, old_event_ns, ack_event_ns;
};

/* Created with the lease, so that a full map cannot swallow a fence. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LEASES_MAX);
	__type(key, struct lease_key);
	__type(value, struct state);
} states SEC(".maps");

static __always_inline struct state *state_of(const struct lease_key *key)
{
	return bpf_map_lookup_elem(&states, key);
}

enum raise {
	RAISED, /* by us */
	PASSED, /* was as great already */
	MISSED, /* too much company; the claim is sent again anyway */
};

/* Raises *max to token; it never falls, whoever else is at it. */
static __always_inline enum raise state_raise(__u64 *max, __u64 token)
{
	__u64 seen = *(volatile __u64 *)max;

	for (int i = 0; i < RAISE_TRIES; i++) {
		__u64 old = seen;

		if (old >= token)
			return PASSED;
		seen = __sync_val_compare_and_swap(max, old, token);
		if (seen == old)
			return RAISED;
	}
	return MISSED;
}

/*
 * R9: fenced while a claim is newer than the lease, so only a newer lease ends
 * it. Nothing is looked up while the gate is shut.
 */
static __always_inline bool state_is_fenced(const struct lease_key *key,
					    const struct lease *l)
{
	const struct state *s;

	if (!gate_is_open())
		return false;
	s = state_of(key);
	return s && s->max > l->token;
}

#endif
