/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The usual packets: TCP and UDP from a pod's own MAC and leased address, while
 * nothing is fenced. They pass by the record of the slot and the gate alone,
 * since a lookup in a hash map costs as much as an empty program. judge() lets
 * each of them pass too, and decides on all others.
 */
#ifndef FENCELINE_USUAL_H
#define FENCELINE_USUAL_H

#include "judge.h"

struct usual_ipv4 {
	struct frame_macs macs;
	__be16 proto;
	struct ipv4_head ip;
	struct ipv4_upper upper;
} __attribute__((packed, aligned(2)));

struct usual_ipv6 {
	struct frame_macs macs;
	__be16 proto;
	__u8 version[4];
	__be16 length;
	struct ipv6 ip;
	struct addr target;
	struct ipv4_upper upper;
} __attribute__((packed, aligned(2)));

static __always_inline bool usual_ether(const struct frame_macs *macs,
					const struct slot *s, bool on_link)
{
	return !judge_is_to_bridge(&macs->to) &&
	       (on_link || !s->sources || mac_equal(&macs->from, &s->mac));
}

/* A later fragment has no port, but all of those pass. */
static __always_inline bool usual_upper(const struct ipv4_upper *u, __u8 proto,
					__be16 client)
{
	return proto == NEXT_TCP || (proto == NEXT_UDP && u->port != client);
}

static __always_inline bool usual_ipv4(struct __sk_buff *skb,
				       const struct slot *s, bool on_link)
{
	const struct usual_ipv4 *p = frame_start(skb);

	if ((void *)(p + 1) > frame_end(skb))
		return false;
	return usual_ether(&p->macs, s, on_link) &&
	       p->ip.version == IPV4_PLAIN && s->leased4 &&
	       p->ip.addrs.source == s->leased4 &&
	       !router_hears4(p->ip.addrs.target) &&
	       usual_upper(&p->upper, p->ip.proto, DHCP_CLIENT);
}

/* In place, because a copy of the source would be on the stack. */
static __always_inline bool usual_source(const struct ipv6 *ip,
					 const struct addr *leased)
{
	return ip->source.word[0] == leased->word[0] &&
	       ip->source.word[1] == leased->word[1] &&
	       ip->source.word[2] == leased->word[2] &&
	       ip->source.word[3] == leased->word[3];
}

static __always_inline bool usual_ipv6(struct __sk_buff *skb,
				       const struct slot *s, bool on_link)
{
	const struct usual_ipv6 *p = frame_start(skb);

	if ((void *)(p + 1) > frame_end(skb))
		return false;
	return usual_ether(&p->macs, s, on_link) &&
	       !addr_is_unspecified(&s->leased6) &&
	       usual_source(&p->ip, &s->leased6) &&
	       (p->target.word[0] & bpf_htonl(0xffff0000)) !=
		       bpf_htonl(0xff020000) &&
	       usual_upper(&p->upper, p->ip.next, DHCPV6_CLIENT);
}

/* Reports whether the frame is a usual packet of the slot. */
static __always_inline bool usual_is(struct __sk_buff *skb,
				     const struct frame *f,
				     const struct slot *s, bool on_link)
{
	if (s->status != SLOT_ALIVE || f->l3 != ETH_HLEN || skb->vlan_present ||
	    gate_is_open())
		return false;
	if (f->proto == bpf_htons(ETH_P_IP))
		return usual_ipv4(skb, s, on_link);
	return f->proto == bpf_htons(ETH_P_IPV6) && usual_ipv6(skb, s, on_link);
}

/* True if the frame needs no ARP, ND or fence check. */
static __always_inline bool usual_is_silent(struct __sk_buff *skb,
					    const struct frame *f)
{
	if (gate_is_open())
		return false;
	return f->proto == bpf_htons(ETH_P_IP) ||
	       (f->proto == bpf_htons(ETH_P_IPV6) && !ipv6_may_be_nd(skb, f));
}

#endif
