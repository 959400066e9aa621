/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_ADDR_H
#define FENCELINE_ADDR_H

#include "kernel.h"

/* An IPv6 address, or an IPv4 one as IPv4-mapped (RFC 4291, 2.5.5.2). */
struct addr {
	__be32 word[4];
};

/* The arguments of functions that take the halves of an address. */
#define ADDR_HALVES(a)                            \
	(__u64)(a)->word[0] << 32 | (a)->word[1], \
		(__u64)(a)->word[2] << 32 | (a)->word[3]

#define ADDR_MAPPED bpf_htonl(0xffff)

static __always_inline struct addr addr_of(__u64 high, __u64 low)
{
	return (struct addr){ .word = { high >> 32, high, low >> 32, low } };
}

static __always_inline struct addr addr_of_v4(__be32 v4)
{
	return (struct addr){ .word = { 0, 0, ADDR_MAPPED, v4 } };
}

/* No honest IPv6 header contains such an address. */
static __always_inline bool addr_is_mapped(const struct addr *a)
{
	return !(a->word[0] | a->word[1]) && a->word[2] == ADDR_MAPPED;
}

/* "::", or 0.0.0.0 in its mapped form. */
static __always_inline bool addr_is_unspecified(const struct addr *a)
{
	return !(a->word[0] | a->word[1] | a->word[3]) &&
	       (!a->word[2] || a->word[2] == ADDR_MAPPED);
}

/* fe80::/10: never leased, each interface has its own. */
static __always_inline bool addr_is_link_local(const struct addr *a)
{
	return (a->word[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* Addresses that are never leased, so the rules of leases let them pass. */
static __always_inline bool addr_is_exempt(const struct addr *a)
{
	return addr_is_unspecified(a) || addr_is_link_local(a);
}

#endif
