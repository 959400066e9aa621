/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Strangers: frames that leave by a parent with a MAC that no pod has.
 * An exclusive parent passes those of the node.
 */
#ifndef FENCELINE_STRANGER_H
#define FENCELINE_STRANGER_H

#include "local.h"
#include "sender.h"

enum {
	NEXT_IPIP = 4,
	NEXT_IPV6 = 41,
	NEXT_GRE = 47,
	NEXT_ESP = 50,
};

/*
 * The programs of a CNI may send the packet of a pod into a tunnel of the node.
 * It keeps the pod's socket, and has an address of the node as its source.
 */
static __always_inline bool stranger_is_tunnel(struct __sk_buff *skb,
					       const struct frame *f)
{
	struct source_key key = { .prefix = PREFIX_OF_KEY + 128 };
	struct {
		struct ipv4_head ip;
		struct ipv4_upper upper;
	} __attribute__((packed, aligned(2))) four;
	struct ipv6 six;
	__u8 next;

	if (f->proto == bpf_htons(ETH_P_IP)) {
		if (!frame_payload(skb, f, 0, &four, sizeof(four)) ||
		    four.ip.version != IPV4_PLAIN ||
		    four.upper.port == DHCP_CLIENT)
			return false;
		key.addr = addr_of_v4(four.ip.addrs.source);
		next = four.ip.proto;
	} else if (f->proto == bpf_htons(ETH_P_IPV6)) {
		if (!ipv6_read(skb, f, &six))
			return false;
		key.addr = six.source;
		next = six.next;
	} else {
		return false;
	}
	return (next == NEXT_UDP || next == NEXT_IPIP || next == NEXT_IPV6 ||
		next == NEXT_GRE || next == NEXT_ESP) &&
	       bpf_map_lookup_elem(&sources, &key);
}

/*
 * With ipvlan, the slots of a pod have the parent's MAC. Returns the one that
 * holds the address of the frame, or any one; 0 if the pod has none here.
 */
static __always_inline __u32 stranger_ipvlan(struct __sk_buff *skb,
					     const struct frame *f,
					     __u32 segment, __u32 netns)
{
	struct mac as = local_netns(netns);
	const __u32 *any = local_of(segment, &as);
	struct lease_key key;
	const struct lease *l;
	const struct slot *s;
	struct addr a = {};

	if (!any)
		return 0;
	judge_address(skb, f->l3, f->proto, &a);
	key = lease_key_of(segment, &a);
	l = lease_of(&key);
	s = l ? slot_of(l->slot) : 0;
	return s && s->netns == netns ? l->slot : *any;
}

/*
 * Returns the slot that judges a frame with a MAC of the node, by the pod whose
 * socket sent it; 0: it passes. The observer of a VLAN has judged the frames of
 * the VLAN.
 */
static __always_inline __u32 stranger_by(struct __sk_buff *skb,
					 const struct frame *f, __u32 segment,
					 __u32 netns)
{
	struct mac as = local_netns(netns);
	__u32 slot;

	if (!netns || stranger_is_tunnel(skb, f))
		return 0;
	slot = stranger_ipvlan(skb, f, segment, netns);
	if (slot)
		return slot;
	return local_of(EVERY_SEGMENT, &as) ? 0 : LOCAL_STRANGER;
}

/*
 * Returns the slot that judges a frame with a MAC of no slot, 0 if it passes,
 * or LOCAL_STRANGER. In a function of its own, because the stack of the kernel
 * is small.
 */
static __noinline __u32 stranger_slot(struct __sk_buff *skb,
				      const struct frame *f,
				      const struct mac *from, __u32 segment)
{
	const struct parent *parent = parent_of(segment);

	if (!parent || !(parent->flags & PARENT_EXCLUSIVE) ||
	    parent->flags & PARENT_BRIDGE_PORT || local_of(EVERY_SEGMENT, from))
		return 0;
	if (local_of(segment, from)) /* LOCAL_NODE */
		return stranger_by(skb, f, segment, sender_netns(skb));
	/* User space tells the MAC of a parent soon. */
	return mac_equal(&parent->mac, from) ? 0 : LOCAL_STRANGER;
}

static __always_inline int stranger_drop(struct __sk_buff *skb,
					 const struct frame *f, __u32 segment)
{
	judge_record(skb, judge_whom(0, segment),
		     DROP_STRANGER << 16 | OBSERVER_EGRESS, f->l3, f->proto);
	return drop(OBSERVER_EGRESS, DROP_STRANGER);
}

#endif
