/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The claim frame: "this address belongs to that token", authenticated. */
#ifndef FENCELINE_CLAIM_H
#define FENCELINE_CLAIM_H

#include "addr.h"
#include "mac.h"
#include "siphash.h"

/*
 * The wire format, in host order. agent/segment/claim has it too, for machines
 * without BPF: a test compares struct claim and these numbers with its codec,
 * through the object's BTF.
 */
enum claim_wire {
	CLAIM_ETHERTYPE = 0x88b5, /* IEEE 802 local experimental ethertype 1 */
	CLAIM_MAGIC_V1 = 0x464c4331, /* "FLC1", the digit is the version */
	ACK_MAGIC_V2 = 0x464c4332,   /* "FLC2", see claim_has_magic() */
	CLAIM_FLAG_ACK = 1 << 0,
	CLAIM_ASKED_SHIFT = 1, /* see claim_asks() */
};

struct claim {
	__be32 magic;
	__be32 flags;
	__be64 network;
	struct addr addr;
	__be64 token;
	__u64 tag; /* SipHash of all fields above, little endian */
} __attribute__((aligned(8)));

_Static_assert(__builtin_offsetof(struct claim, tag) == SIPHASH_BYTES,
	       "the tag covers all other fields");

#define CLAIM_KEYS   2 /* current, previous */
#define CLAIM_NO_KEY (-1)
#define NETWORKS_MAX 16384

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

/* The networks of this cluster; the value is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NETWORKS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u8);
} networks SEC(".maps");

/*
 * The networks again, by their remainder; 0: none. A lookup in a hash map costs
 * as much as an empty program. Of several networks with one remainder, the
 * entry has any one.
 */
enum network_limit {
	NETWORK_INDEX = 1024,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NETWORK_INDEX);
	__type(key, __u32);
	__type(value, __u64);
} network_index SEC(".maps");

static __always_inline bool claim_is_ack(const struct claim *c)
{
	return c->flags & bpf_htonl(CLAIM_FLAG_ACK);
}

/*
 * An ack with the digit 1 answers for the MAC of a holder. Two holders may have
 * one MAC, so it proves nothing. The digit of a claim stays 1: an earlier
 * kernel fences by our claims, and we fence by those of an earlier agent.
 */
static __always_inline bool claim_has_magic(const struct claim *c)
{
	return c->magic ==
	       bpf_htonl(claim_is_ack(c) ? ACK_MAGIC_V2 : CLAIM_MAGIC_V1);
}

static __always_inline bool claim_is_ours(const struct claim *c)
{
	__u64 network = bpf_be64_to_cpu(c->network);
	__u32 at = network % NETWORK_INDEX;
	const volatile __u64 *known = bpf_map_lookup_elem(&network_index, &at);

	return (known && network && *known == network) ||
	       bpf_map_lookup_elem(&networks, &network);
}

/* Returns 0 if there is no such key. */
static __always_inline __u64 claim_tag(__u32 index,
				       const __u64 word[SIPHASH_WORDS])
{
	const struct claim_key *key = bpf_map_lookup_elem(&keys, &index);

	return key && key->present ? siphash(&key->siphash, word) : 0;
}

/*
 * A function for each key: the five words of a claim are all the arguments that
 * a BPF function can have.
 */
__noinline __u64 claim_tag_current(__u64 w0, __u64 w1, __u64 w2, __u64 w3,
				   __u64 w4)
{
	const __u64 word[SIPHASH_WORDS] = { w0, w1, w2, w3, w4 };

	return claim_tag(0, word);
}

__noinline __u64 claim_tag_previous(__u64 w0, __u64 w1, __u64 w2, __u64 w3,
				    __u64 w4)
{
	const __u64 word[SIPHASH_WORDS] = { w0, w1, w2, w3, w4 };

	return claim_tag(1, word);
}

static __always_inline __u64 claim_tag_by(const struct claim *c, int key)
{
	const __u64 *w = (const __u64 *)c;

	return key ? claim_tag_previous(w[0], w[1], w[2], w[3], w[4])
		   : claim_tag_current(w[0], w[1], w[2], w[3], w[4]);
}

/* Returns the key that the tag fits, for the ack to use, or CLAIM_NO_KEY. */
static __always_inline int claim_verify(const struct claim *c)
{
	if (!c->tag) /* that of a missing key */
		return CLAIM_NO_KEY;
	if (claim_tag_by(c, 0) == c->tag)
		return 0;
	return claim_tag_by(c, 1) == c->tag ? 1 : CLAIM_NO_KEY;
}

/*
 * A claim fences every holder of the address, but only the ack of the last one
 * proves anything. The claim names that holder by the low 31 bits of the token
 * of its lease, in the flags above CLAIM_FLAG_ACK. 0 asks no holder.
 */
static __always_inline bool claim_asks(const struct claim *c, __u64 token)
{
	__u32 asked = bpf_ntohl(c->flags) >> CLAIM_ASKED_SHIFT;

	return asked && asked == ((__u32)token & (~0U >> CLAIM_ASKED_SHIFT));
}

/* Returns false if the key has gone since the claim fitted. */
static __always_inline bool claim_sign(struct claim *c, int key)
{
	c->tag = claim_tag_by(c, key);
	return c->tag;
}

#endif
