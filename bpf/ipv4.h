/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_IPV4_H
#define FENCELINE_IPV4_H

#include "frame.h"
#include "speech.h"

#define IPV4_HLEN   20
#define IPV4_SOURCE 12

static __always_inline enum clarity
ipv4_parse(struct __sk_buff *skb, const struct frame *f, struct speech *s)
{
	struct {
		__be32 source, target;
	} ip;

	/* The two addresses end the fixed header: one read proves it whole. */
	if (!frame_payload(skb, f, IPV4_SOURCE, &ip, sizeof(ip)))
		return UNCLEAR;
	s->sender = s->subject = addr_of_v4(ip.source);
	s->target = addr_of_v4(ip.target);
	s->mac = f->from;
	s->kind = KIND_IP;
	return CLEAR;
}

#endif
