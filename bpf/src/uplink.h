/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Claims at the uplink of a bridge of Open vSwitch, for the parent of a VLAN on
 * that bridge: only its daemon, which may be dead, brings them to the parent.
 */
#ifndef FENCELINE_UPLINK_H
#define FENCELINE_UPLINK_H

#include "ingress.h"

/* The parents, by the uplink in the high half, and the VLAN in the low one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PARENTS_MAX);
	__type(key, __u64);
	__type(value, __u32);
} uplinks SEC(".maps");

/*
 * Only fences and acks. Probes and their answers still need the daemon, so this
 * is no evidence that the parent hears others (R2). The claim passes, and the
 * parent may meet it again. Linux has moved the outer tag out of the frame.
 */
static __noinline int uplink_claim(struct __sk_buff *skb, const struct frame *f,
				   __u32 uplink)
{
	__u64 at = (__u64)uplink << 32 | (skb->vlan_tci & VLAN_VID_MASK);
	const __u32 *segment = bpf_map_lookup_elem(&uplinks, &at);
	const struct parent *parent;
	const struct lease *l;
	struct claimed c;
	bool dead;
	int key;

	if (!segment || f->l3 != ETH_HLEN || !skb->vlan_present ||
	    skb->vlan_proto != bpf_htons(ETH_P_8021Q) ||
	    !fence_read(skb, f, &c, *segment, OBSERVER_INGRESS) ||
	    claim_is_ack(&c.claim))
		return PASS;
	parent = parent_of(*segment);
	l = fence_lease(&c);
	if (!parent || !l || c.token <= l->token)
		return PASS;
	dead = slot_is_dead(l->slot);
	key = fence_raise(&c, l, OBSERVER_INGRESS);
	if (key == CLAIM_NO_KEY || hearing_is_echo(&c.macs.from, parent) ||
	    !ingress_acks(&c, l, dead, 0))
		return PASS;
	return ack_send(skb, &c, key, &parent->mac, OBSERVER_INGRESS, PASS);
}

#endif
