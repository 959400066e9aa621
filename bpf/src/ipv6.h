/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_IPV6_H
#define FENCELINE_IPV6_H

#include "frame.h"
#include "speech.h"
#include "nd.h"

#define IPV6_HLEN   40
#define IPV6_NEXT   6
#define IPV6_TARGET 24

/* RFC 4861, 7.1: proves that no router forwarded the packet. */
#define ND_HOP_LIMIT 255

struct ipv6 {
	__u8 next, limit;
	struct addr source;
} __attribute__((packed, aligned(2)));

/* Reports whether the packet may contain ND; true for a truncated packet. */
static __always_inline bool ipv6_may_be_nd(struct __sk_buff *skb,
					   const struct frame *f)
{
	__be16 next_and_limit;

	if (!frame_payload(skb, f, IPV6_NEXT, &next_and_limit,
			   sizeof(next_and_limit)))
		return true;
	return nd_may_follow(bpf_ntohs(next_and_limit) >> 8);
}

static __always_inline bool ipv6_read(struct __sk_buff *skb,
				      const struct frame *f, struct ipv6 *ip)
{
	return frame_payload(skb, f, IPV6_NEXT, ip, sizeof(*ip));
}

/*
 * Sets s->mac only if the packet is ND with a target link-layer address. heard:
 * the packet was received. Received ND with another hop limit counts as data,
 * because hosts ignore it. Sent ND is parsed with any hop limit.
 */
static __always_inline enum clarity ipv6_parse(struct __sk_buff *skb,
					       const struct frame *f,
					       struct speech *s, bool heard)
{
	enum clarity clarity;
	struct ipv6 ip;
	__be32 flow;

	if (!frame_payload(skb, f, IPV6_TARGET, &s->target,
			   sizeof(s->target)) ||
	    !ipv6_read(skb, f, &ip))
		return UNCLEAR;
	s->sender = s->subject = ip.source;
	s->kind = KIND_IP;
	if (addr_is_mapped(&s->sender))
		return UNCLEAR;
	if (!nd_may_follow(ip.next) || (heard && ip.limit != ND_HOP_LIMIT))
		return CLEAR;
	clarity = nd_parse(skb, f->l3 + IPV6_HLEN, ip.next, s);
	if (clarity == CLEAR && s->kind == KIND_DAD &&
	    frame_payload(skb, f, 0, &flow, sizeof(flow)) &&
	    (flow & FLOW_MASK) == QUESTION_FLOW)
		return SILENT;
	return clarity;
}

#endif
