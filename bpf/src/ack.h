/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Acks: the reply of a kernel that has fenced the address of a claim. */
#ifndef FENCELINE_ACK_H
#define FENCELINE_ACK_H

#include "fence.h"
#include "hearing.h"

static __always_inline bool ack_store(struct __sk_buff *skb, __u32 l3,
				      const struct frame_macs *macs,
				      const struct claim *c)
{
	return !bpf_skb_store_bytes(skb, 0, macs, sizeof(*macs), 0) &&
	       !bpf_skb_store_bytes(skb, l3, c, sizeof(*c), 0);
}

/*
 * Turns the claim into its ack and sends it back out, from own: the parent's
 * MAC, as switches must forget the zombie's, or that of a VF. key is that of
 * the claim: in a rotation the sender may not know the other one. On verdict
 * PASS a clone goes out, and the frame becomes the claim again.
 */
static __always_inline int ack_send(struct __sk_buff *skb,
				    const struct claimed *c, int key,
				    const struct mac *own, enum where where,
				    enum verdict verdict)
{
	struct frame_macs macs = { .to = c->macs.from, .from = *own };
	struct claim ack = c->claim;

	ack.magic = bpf_htonl(ACK_MAGIC_V2);
	ack.flags |= bpf_htonl(CLAIM_FLAG_ACK);
	if (!claim_sign(&ack, key))
		return verdict;
	if (!ack_store(skb, c->l3, &macs, &ack))
		return DROP;
	count(where, ACK_SENT);
	if (verdict == DROP)
		return bpf_redirect(skb->ifindex, 0);
	bpf_clone_redirect(skb, skb->ifindex, 0);
	return ack_store(skb, c->l3, &c->macs, &c->claim) ? PASS : DROP;
}

/* An ack proves that another kernel has fenced the address of our claim. */
static __always_inline void ack_receive(const struct claimed *c,
					const struct parent *parent,
					enum where where)
{
	const struct lease *l = lease_of(&c->key);
	struct state *st = state_of(&c->key);
	__u64 now;

	if (!l || !st || !lease_is_in(l, &c->claim)) {
		count(where, ACK_UNASKED);
		return;
	}
	if (claim_verify(&c->claim) == CLAIM_NO_KEY) {
		count(where, CLAIM_FORGED);
		return;
	}
	count(where, ACK);
	hearing_note(c->key.segment, &c->macs.from, parent);
	if (state_raise(st, &st->acked, c->token, 0) == RAISED)
		st->ack_event_ns = now = bpf_ktime_get_boot_ns();
	else
		now = event_due(st, &st->ack_event_ns, where);
	if (!now)
		return;
	st->acked_by = speaker_of(&c->macs.from, 0);
	fence_event(c, l, EVENT_ACK, now, where);
}

#endif
