/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* State: what the wire said of a leased address. Written by the kernel only. */
#ifndef FENCELINE_STATE_H
#define FENCELINE_STATE_H

#include "gate.h"
#include "lease.h"

/* Times are CLOCK_BOOTTIME in nanoseconds, 0 for never. */
struct state {
	__u64 max;	/* greatest token of a valid claim */
	__u64 acked;	/* greatest token of a valid ack */
	__u64 acked_by; /* speaker */
	__u64 hit_ns, hit_by, hits;
	__u64 probe_ns, probe_by, probes;
	/* When each sort of event was last sent, for its rate limit. */
	__u64 hit_event_ns, probe_event_ns, old_event_ns, ack_event_ns;
	/* Of who compares and writes; kernels before 5.12 cannot do both at
	 * once. Last, and ignored by who reads. */
	struct bpf_spin_lock lock;
	__u32 news; /* hits told of although their time had not come */
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
};

/* Raises one of the state's tokens; it never falls, whoever else is at it. */
static __always_inline enum raise state_raise(struct state *st, __u64 *max,
					      __u64 token)
{
	enum raise raise = PASSED;

	bpf_spin_lock(&st->lock);
	if (*max < token) {
		*(volatile __u64 *)max = token; /* whole, for who reads */
		raise = RAISED;
	}
	bpf_spin_unlock(&st->lock);
	return raise;
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
