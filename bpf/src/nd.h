/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* IPv6 neighbour discovery (RFC 4861), also behind extension headers. */
#ifndef FENCELINE_ND_H
#define FENCELINE_ND_H

#include "frame.h"
#include "speech.h"
#include "upper.h"

#define ND_RS		     133
#define ND_RA		     134
#define ND_NS		     135
#define ND_NA		     136
#define ND_REDIRECT	     137

#define ND_OPTION_SOURCE_MAC 1
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

static __always_inline bool nd_is_type(__u8 type)
{
	return type >= ND_RS && type <= ND_REDIRECT;
}

/* Next headers that may precede ND. */
static __always_inline bool nd_may_follow(__u8 next)
{
	return next == NEXT_ICMPV6 || upper_is_extension(next);
}

/* Reads the first option of the NS or NA at off if it has this type. */
static __always_inline bool nd_has_option(struct __sk_buff *skb, __u32 off,
					  __u8 type, struct nd_option *option)
{
	return !bpf_skb_load_bytes(skb, off + sizeof(struct nd), option,
				   sizeof(*option)) &&
	       option->type == type && option->length == 1;
}

/*
 * Updates the speech of the packet by the NS or NA at off. DAD with a source
 * link-layer address is invalid (RFC 4861, 7.1.1).
 */
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
			if (nd_has_option(skb, off, ND_OPTION_SOURCE_MAC,
					  &option))
				return UNCLEAR;
		}
		return CLEAR;
	}
	s->subject = nd.target;
	s->kind = KIND_NA;
	if (nd_has_option(skb, off, ND_OPTION_TARGET_MAC, &option))
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
	struct upper u;
	__u8 type;

	if (!upper_find(skb, off, next, &u))
		return UNCLEAR;
	if (u.proto != NEXT_ICMPV6)
		return CLEAR;
	if (bpf_skb_load_bytes(skb, u.off, &type, sizeof(type)))
		return UNCLEAR;
	if (u.fragment) /* against RFC 6980 */
		return nd_is_type(type) ? UNCLEAR : CLEAR;
	if (type != ND_NS && type != ND_NA)
		return CLEAR;
	return nd_read(skb, u.off, s);
}

#endif
