/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_IPV4_H
#define FENCELINE_IPV4_H

#include "frame.h"
#include "speech.h"

#define IPV4_SOURCE 12

/* The end of the fixed header: a successful read proves the header complete. */
struct ipv4_addrs {
	__be32 source, target;
};

static __always_inline bool
ipv4_read(struct __sk_buff *skb, const struct frame *f, struct ipv4_addrs *ip)
{
	return frame_payload(skb, f, IPV4_SOURCE, ip, sizeof(*ip));
}

/* Does not set s->mac. */
static __always_inline enum clarity
ipv4_parse(struct __sk_buff *skb, const struct frame *f, struct speech *s)
{
	struct ipv4_addrs ip;

	if (!ipv4_read(skb, f, &ip))
		return UNCLEAR;
	s->sender = s->subject = addr_of_v4(ip.source);
	s->target = addr_of_v4(ip.target);
	s->kind = KIND_IP;
	return CLEAR;
}

#endif
