/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The claim frame: "this address belongs to that token", authenticated. */
#ifndef FENCELINE_CLAIM_H
#define FENCELINE_CLAIM_H

#include "addr.h"
#include "mac.h"
#include "siphash.h"

#define CLAIM_MAGIC_V1 bpf_htonl(0x464c4331) /* "FLC1" */
#define CLAIM_ACK      bpf_htonl(1 << 0)
#define CLAIM_KEYS     2 /* current, previous */
#define CLAIM_NO_KEY   (-1)
#define NETWORKS_MAX   256

struct claim {
	__be32 magic;
	__be32 flags;
	__be64 network;
	struct addr addr;
	__be64 token;
	__u64 tag; /* over all that stands before it */
} __attribute__((aligned(8)));

_Static_assert(__builtin_offsetof(struct claim, tag) == SIPHASH_BYTES,
	       "the tag covers all of the claim");

struct claim_key {
	struct siphash_key siphash;
	__u64 present;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLAIM_KEYS);
	__type(key, __u32);
	__type(value, struct claim_key);
} keys SEC(".maps");

/* Networks of this cluster; the value is of no interest. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NETWORKS_MAX);
	__type(key, __u64);
	__type(value, __u8);
} networks SEC(".maps");

static __always_inline bool claim_is_ours(const struct claim *c)
{
	__u64 network = bpf_be64_to_cpu(c->network);

	return bpf_map_lookup_elem(&networks, &network);
}

/* Not inlined: once in the program is enough, and the verifier's too. */
static __noinline __u64 claim_tag(const struct claim *c,
				  const struct siphash_key *key)
{
	return siphash(key, (const __u64 *)c);
}

/* Which key the tag fits, so that an ack can use the same; or CLAIM_NO_KEY. */
static __noinline int claim_verify(const struct claim *c)
{
	for (__u32 i = 0; i < CLAIM_KEYS; i++) {
		__u32 index = i;
		const struct claim_key *key;

		key = bpf_map_lookup_elem(&keys, &index);
		if (key && key->present &&
		    claim_tag(c, &key->siphash) == c->tag)
			return i;
	}
	return CLAIM_NO_KEY;
}

/*
 * Every holder that is fenced could answer, also one from whom the address was
 * taken long ago. The claim names the holder whose ack would prove something,
 * by the low 31 bits of its MAC, above CLAIM_ACK; 0 asks whoever holds the
 * address.
 */
static __always_inline bool claim_asks(const struct claim *c,
				       const struct mac *holder)
{
	__u32 low = (__u32)bpf_ntohs(holder->part[1]) << 16 |
		    bpf_ntohs(holder->part[2]);
	__u32 asked = bpf_ntohl(c->flags) >> 1;

	return !asked || asked == (low & (~0U >> 1));
}

static __always_inline bool claim_sign(struct claim *c, __u32 index)
{
	const struct claim_key *key = bpf_map_lookup_elem(&keys, &index);

	if (!key)
		return false;
	c->tag = claim_tag(c, &key->siphash);
	return true;
}

#endif
