/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Claims and acks on ingress of a parent, or of a VF, which has no observer. */
#ifndef FENCELINE_INGRESS_H
#define FENCELINE_INGRESS_H

#include "ack.h"
#include "slot.h"

/* A claim older than the lease held here. The agent replies with its own. */
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
	hearing_note(c->key.segment, &c->macs.from, parent);
	if (!st)
		return;
	now = event_due(st, &st->old_event_ns, where);
	if (now)
		fence_event(c, l, EVENT_OLD_CLAIM, now, where);
}

/*
 * Reports whether this node acks a claim that has fenced a lease. The address
 * of a dead slot may have had a later holder elsewhere, which is alive and did
 * not hear the claim. An ack from here would pass for that holder's. The same
 * holds for every zombie that is not the holder named in the claim, also with
 * that holder's MAC. A holder without a guard may speak on, until its VF is
 * off. A VF whose guard was removed speaks on too, so only the guard itself
 * acks for it.
 */
static __always_inline bool ingress_acks(const struct claimed *c,
					 const struct lease *l, bool dead,
					 __u32 vf)
{
	return !dead && !(l->flags & LEASE_UNGUARDED) &&
	       (vf ? l->slot == vf : !(l->flags & LEASE_VF)) &&
	       claim_asks(&c->claim, l->token);
}

/*
 * Cheapest checks first: most claims on a segment concern other nodes and end
 * at the lookup of the lease. A VF sends the ack from its own MAC, not a
 * parent's, and for its own slot only; vf is 0 on a parent.
 */
__noinline int ingress_claim(struct __sk_buff *skb, __u32 l3, __u32 where,
			     __u32 vf, __u32 segment)
{
	const struct frame f = { .l3 = l3 };
	const struct parent *parent = parent_of(segment);
	enum verdict verdict = DROP;
	const struct mac *own;
	const struct lease *l;
	struct claimed c;
	bool dead;
	int key;

	if (!fence_read(skb, &f, &c, segment, where))
		return PASS;
	if (parent && parent->flags & PARENT_BRIDGE_PORT)
		verdict = PASS;
	if (claim_is_ack(&c.claim)) {
		ack_receive(&c, parent, where);
		return verdict;
	}
	l = fence_lease(&c);
	if (!l) {
		count(where, CLAIM_NOT_HELD);
		hearing_check(&c.claim, &c.key, &c.macs.from, parent, where);
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
	own = vf || !parent ? &l->mac : &parent->mac;
	if (key == CLAIM_NO_KEY || hearing_is_echo(&c.macs.from, parent))
		return verdict;
	hearing_note(segment, &c.macs.from, parent);
	if (!ingress_acks(&c, l, dead, vf))
		return verdict;
	return ack_send(skb, &c, key, own, where, verdict);
}

#endif
