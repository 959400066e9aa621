/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A claim or ack that comes in: on a parent, or on a VF that nobody watches. */
#ifndef FENCELINE_INGRESS_H
#define FENCELINE_INGRESS_H

#include "ack.h"
#include "slot.h"

/* Somebody claims with an older token what is held here: the agent answers. */
static __always_inline void ingress_old(const struct claimed *c,
					const struct lease *l,
					const struct parent *parent,
					enum where where)
{
	struct state *st = state_of(&c->key);
	__u64 now;

	if (claim_verify(&c->claim) == CLAIM_NO_KEY) {
		count(where, CLAIM_FORGED);
		return;
	}
	count(where, CLAIM_OLD);
	now = bpf_ktime_get_boot_ns();
	hearing_note(&c->macs.from, parent, now);
	if (st && event_is_due(st, &st->old_event_ns, now, where))
		fence_event(c, l, EVENT_OLD_CLAIM, now, where);
}

/*
 * Cheapest checks first: most claims on a segment are other nodes' and end at
 * the look-up. A VF has no parent to answer from and uses its own MAC.
 */
static __always_inline int
ingress_claim(struct __sk_buff *skb, const struct frame *f, enum where where)
{
	const struct parent *parent = parent_own();
	enum verdict verdict = DROP;
	const struct mac *own;
	const struct lease *l;
	struct claimed c;
	bool dead;
	int key;

	if (!fence_read(skb, f, &c, where))
		return PASS;
	if (parent && parent->flags & PARENT_BRIDGE_PORT)
		verdict = PASS;
	if (c.claim.flags & CLAIM_ACK) {
		ack_receive(&c, parent, where);
		return verdict;
	}
	l = fence_lease(&c);
	if (!l) {
		count(where, CLAIM_NOT_HELD);
		hearing_check(&c.claim, &c.macs.from, parent, where);
		return verdict;
	}
	if (c.token == l->token) {
		count(where, CLAIM_EQUAL);
		return verdict;
	}
	if (c.token < l->token) {
		ingress_old(&c, l, parent, where);
		return verdict;
	}
	dead = slot_is_dead(l->slot);
	key = fence_raise(&c, l, where);
	own = where == GUARD_INGRESS || !parent ? &l->mac : &parent->mac;
	if (key == CLAIM_NO_KEY || hearing_is_echo(&c.macs.from, parent))
		return verdict;
	hearing_note(&c.macs.from, parent, bpf_ktime_get_boot_ns());
	/*
	 * A dead slot spoke for the address once; who was given it since may
	 * be elsewhere, alive and deaf, and an ack would stand for him. So
	 * would that of a zombie who held it before the one who is meant.
	 */
	if (dead || !claim_asks(&c.claim, &l->mac))
		return verdict;
	return ack_send(skb, &c, key, own, where, verdict);
}

#endif
