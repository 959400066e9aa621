/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State: the frames that the kernel has heard of a leased address. User space
 * creates and deletes the entry. Only the kernel changes it.
 */
#ifndef FENCELINE_STATE_H
#define FENCELINE_STATE_H

#include "gate.h"
#include "lease.h"

/* Times are CLOCK_BOOTTIME in nanoseconds, 0 for never. */
struct state {
	/* Greatest token of a valid claim, or of the holder that a standby
	 * waits for.
	 */
	__u64 max;
	__u64 acked;	/* greatest token of a valid ack */
	__u64 acked_by; /* speaker */
	/* The high byte of hit_by and probe_by is an enum where. */
	__u64 hit_ns, hit_by, hits;
	__u64 probe_ns, probe_by, probes;
	/* When each sort of event was last sent, for its rate limit. */
	__u64 hit_event_ns, probe_event_ns, old_event_ns, ack_event_ns;
	/*
	 * For compare-and-write: BPF has no cmpxchg before Linux 5.12. Readers
	 * do not take it.
	 */
	struct bpf_spin_lock lock;
	__u32 news;  /* early events of new speakers, see hit.h */
	__u64 quiet; /* the jiffy in which no event was due, see event.h */
};

/* User space creates the entry with the lease: a full map loses no fence. */
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
	RAISED, /* by this call */
	PASSED, /* was at least as great already */
};

/*
 * Raises max, a token of st. Concurrent calls never lower it, unless it is the
 * disproved token, which counts as none.
 */
static __always_inline enum raise state_raise(struct state *st, __u64 *max,
					      __u64 token, __u64 disproved)
{
	enum raise raise = PASSED;
	__u64 present = *(volatile __u64 *)max;

	if (present >= token && present != disproved)
		return PASSED; /* a replay needs no lock */
	bpf_spin_lock(&st->lock);
	if (*max < token || *max == disproved) {
		*(volatile __u64 *)max =
			token; /* one store: readers take no lock */
		raise = RAISED;
	}
	bpf_spin_unlock(&st->lock);
	return raise;
}

/*
 * R9: an address is fenced while the greatest claim is newer than the lease. So
 * only a newer lease ends the fence, or one that disproves the claim. See also
 * LEASE_UNPROVEN.
 */
static __always_inline bool state_fences(const struct state *st,
					 const struct lease *l)
{
	__u64 max = *(volatile const __u64 *)&st->max;

	return l->flags & LEASE_UNPROVEN ||
	       (max > l->token && max != l->disproved);
}

/* A shut gate saves the lookup. */
static __always_inline bool state_is_fenced(const struct lease_key *key,
					    const struct lease *l)
{
	const struct state *s;

	if (!gate_is_open())
		return false;
	s = state_of(key);
	return s && state_fences(s, l);
}

#endif
