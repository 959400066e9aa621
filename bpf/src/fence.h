/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Fencing: the effect of an authentic, newer claim on an address held here. */
#ifndef FENCELINE_FENCE_H
#define FENCELINE_FENCE_H

#include "ceiling.h"
#include "claim.h"
#include "event.h"
#include "frame.h"
#include "speaker.h"
#include "state.h"

/* A claim or ack of one of our networks, as it was received. */
struct claimed {
	struct claim claim;
	struct lease_key key;
	__u64 token;
	struct frame_macs macs;
	__u32 l3; /* offset of the claim in the frame */
};

static __always_inline void fence_event(const struct claimed *c,
					const struct lease *l,
					enum event_type type, __u64 now,
					enum where where)
{
	struct event e = {
		.ns = now,
		.token = c->token,
		.mine = l->token,
		.key = c->key,
		.type = type,
		.where = where,
		.by = speaker_of(&c->macs.from, 0),
	};

	event_send(&e);
}

/* Returns false and counts why if the frame is no claim of our networks. */
static __always_inline bool fence_read(struct __sk_buff *skb,
				       const struct frame *f, struct claimed *c,
				       __u32 segment, enum where where)
{
	count(where, CLAIM);
	if (!frame_payload(skb, f, 0, &c->claim, sizeof(c->claim))) {
		count(where, CLAIM_SHORT);
		return false;
	}
	if (!claim_has_magic(&c->claim)) {
		count(where, CLAIM_MAGIC);
		return false;
	}
	if (!claim_is_ours(&c->claim)) {
		count(where, CLAIM_FOREIGN);
		return false;
	}
	c->key = lease_key_of(segment, &c->claim.addr);
	c->token = bpf_be64_to_cpu(c->claim.token);
	c->macs = frame_macs_of(skb);
	c->l3 = f->l3;
	return true;
}

/* A watch accepts every network, a held lease only that of its pool. */
static __always_inline bool lease_is_in(const struct lease *l,
					const struct claim *c)
{
	return !lease_is_held(l) || l->network == bpf_be64_to_cpu(c->network);
}

/* Returns the lease that the claim may fence. Watched addresses are not held.
 */
static __always_inline const struct lease *fence_lease(const struct claimed *c)
{
	const struct lease *l = lease_of(&c->key);

	return l && lease_is_held(l) && lease_is_in(l, &c->claim) ? l : 0;
}

/* Replays in turn must not fence in turn, so earlier tokens count as well. */
static __always_inline bool fence_is_disproved(const struct lease *l,
					       __u64 token)
{
	bool is = token == l->disproved;

#pragma unroll
	for (int i = 0; i < DISPROVED_BEFORE; i++)
		is |= token == l->disproved_before[i];
	return is;
}

/*
 * Fences the address if the tag is right and the store can have given the
 * token. Returns the key that the tag fits, or CLAIM_NO_KEY if the address is
 * not fenced. The token is raised even if the address is fenced already: this
 * claim may be newer still.
 */
static __always_inline int fence_raise(const struct claimed *c,
				       const struct lease *l, enum where where)
{
	int key = claim_verify(&c->claim);
	struct state *st;

	if (key == CLAIM_NO_KEY) {
		count(where, CLAIM_FORGED);
		return CLAIM_NO_KEY;
	}
	if (ceiling_is_below(c->token)) {
		count(where, CLAIM_BEYOND);
		return CLAIM_NO_KEY;
	}
	if (fence_is_disproved(l, c->token)) {
		count(where, CLAIM_DISPROVED);
		return CLAIM_NO_KEY;
	}
	st = state_of(&c->key);
	if (!st)
		return CLAIM_NO_KEY;
	if (state_raise(st, &st->max, c->token, l->disproved) == PASSED) {
		/* The CPU that raised it may not have opened the gate yet. */
		if (!gate_is_open())
			gate_open();
		count(where, CLAIM_AGAIN);
		return key;
	}
	gate_open();
	count(where, CLAIM_FENCED);
	fence_event(c, l, EVENT_FENCED, bpf_ktime_get_boot_ns(), where);
	return key;
}

#endif
