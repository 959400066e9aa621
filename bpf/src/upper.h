/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The header of the upper layer, behind the extension headers of IPv6. */
#ifndef FENCELINE_UPPER_H
#define FENCELINE_UPPER_H

#include "frame.h"

#define NEXT_HOP	0
#define NEXT_IGMP	2
#define NEXT_ICMP	1
#define NEXT_TCP	6
#define NEXT_UDP	17
#define NEXT_ROUTING	43
#define NEXT_FRAGMENT	44
#define NEXT_AUTH	51
#define NEXT_ICMPV6	58
#define NEXT_NONE	59
#define NEXT_DEST	60

#define FRAGMENT_OFFSET bpf_htons(0xfff8)

/* RFC 8504, 5.3 lets hosts limit the chain. No real packet has eight. */
#define EXTENSIONS_MAX 8

/* NEXT_NONE in a later fragment: the first one was judged. */
struct upper {
	__u32 off;
	__u8 proto;
	bool fragment;
};

struct extension {
	__u8 next, length;
	__be16 fragment; /* offset and flags, of a fragment header only */
};

static __always_inline bool upper_is_extension(__u8 next)
{
	return next == NEXT_HOP || next == NEXT_DEST || next == NEXT_ROUTING ||
	       next == NEXT_FRAGMENT || next == NEXT_AUTH;
}

/*
 * Follows the header chain, which begins with next at off. Returns the offset,
 * the flag and the protocol in one number, or a negative one for a chain that a
 * host would accept and this walk cannot follow.
 */
__noinline int upper_walk(struct __sk_buff *skb, __u32 off, __u32 next)
{
	__u32 fragment = 0;

	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		struct extension ext;

		if (!upper_is_extension(next))
			return off << 9 | fragment << 8 | next;
		if (bpf_skb_load_bytes(skb, off, &ext, sizeof(ext)))
			return -1;
		switch (next) {
		case NEXT_FRAGMENT:
			if (ext.fragment & FRAGMENT_OFFSET)
				return off << 9 | 1 << 8 | NEXT_NONE;
			fragment = 1;
			off += 8;
			break;
		case NEXT_AUTH:
			off += (ext.length + 2) * 4;
			break;
		default:
			off += (ext.length + 1) * 8;
		}
		next = ext.next;
	}
	return -1;
}

static __always_inline bool upper_find(struct __sk_buff *skb, __u32 off,
				       __u8 next, struct upper *u)
{
	int found = upper_walk(skb, off, next);

	u->off = (__u32)found >> 9;
	u->fragment = found >> 8 & 1;
	u->proto = found & 0xff;
	return found >= 0;
}

#endif
