/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv6 neighbour discovery (RFC 4861), also behind extension headers. */
#ifndef FENCELINE_ND_H
#define FENCELINE_ND_H

#include "frame.h"
#include "speech.h"

#define NEXT_HOP	0
#define NEXT_ROUTING	43
#define NEXT_FRAGMENT	44
#define NEXT_AUTH	51
#define NEXT_ICMPV6	58
#define NEXT_DEST	60

#define FRAGMENT_OFFSET bpf_htons(0xfff8)

/* RFC 8504, 5.3 lets hosts limit the chain. No real packet has eight. */
#define EXTENSIONS_MAX	     8

#define ND_FIRST	     133 /* router solicitation */
#define ND_NS		     135
#define ND_NA		     136
#define ND_LAST		     137 /* redirect */

#define ND_OPTION_TARGET_MAC 2

struct nd {
	__u8 type, code;
	__be16 checksum;
	__be32 flags;
	struct addr target;
};

struct nd_option {
	__u8 type, length; /* length in units of 8 bytes */
	struct mac mac;
} __attribute__((packed, aligned(2)));

struct extension {
	__u8 next, length;
	__be16 fragment; /* offset and flags, of a fragment header only */
};

static __always_inline bool nd_is_type(__u8 type)
{
	return type >= ND_FIRST && type <= ND_LAST;
}

/* Next headers that may precede ND. */
static __always_inline bool nd_may_follow(__u8 next)
{
	return next == NEXT_ICMPV6 || next == NEXT_HOP || next == NEXT_DEST ||
	       next == NEXT_ROUTING || next == NEXT_FRAGMENT ||
	       next == NEXT_AUTH;
}

/* Updates the speech of the packet by the NS or NA at off. */
static __always_inline enum clarity nd_read(struct __sk_buff *skb, __u32 off,
					    struct speech *s)
{
	struct nd_option option;
	struct nd nd;

	if (bpf_skb_load_bytes(skb, off, &nd, sizeof(nd)) ||
	    addr_is_mapped(&nd.target))
		return UNCLEAR;
	if (nd.type == ND_NS) {
		s->target = nd.target;
		s->kind = KIND_NS;
		if (addr_is_unspecified(&s->sender)) {
			s->subject = nd.target;
			s->kind = KIND_DAD;
		}
		return CLEAR;
	}
	s->subject = nd.target;
	s->kind = KIND_NA;
	if (!bpf_skb_load_bytes(skb, off + sizeof(nd), &option,
				sizeof(option)) &&
	    option.type == ND_OPTION_TARGET_MAC && option.length == 1)
		s->mac = option.mac;
	return CLEAR;
}

/*
 * Follows the header chain from off to ND. A chain that a host would accept and
 * this walk cannot follow is UNCLEAR. Other packets stay CLEAR.
 */
static __noinline enum clarity nd_parse(struct __sk_buff *skb, __u32 off,
					__u8 next, struct speech *s)
{
	bool fragment = false;

	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		struct extension ext;

		if (!nd_may_follow(next))
			return CLEAR;
		if (bpf_skb_load_bytes(skb, off, &ext, sizeof(ext)))
			return UNCLEAR;
		switch (next) {
		case NEXT_ICMPV6:     /* its type is at ext.next */
			if (fragment) /* against RFC 6980 */
				return nd_is_type(ext.next) ? UNCLEAR : CLEAR;
			if (ext.next != ND_NS && ext.next != ND_NA)
				return CLEAR;
			return nd_read(skb, off, s);
		case NEXT_FRAGMENT:
			if (ext.fragment & FRAGMENT_OFFSET)
				return CLEAR; /* first fragment was judged */
			fragment = true;
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
	return UNCLEAR;
}

#endif
