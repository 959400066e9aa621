/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SipHash-2-4 (Aumasson, Bernstein 2012) of exactly 40 bytes. */
#ifndef FENCELINE_SIPHASH_H
#define FENCELINE_SIPHASH_H

#include "kernel.h"

#define SIPHASH_BYTES 40
#define SIPHASH_WORDS (SIPHASH_BYTES / 8)

/* The key's halves, read little endian. */
struct siphash_key {
	__u64 k0, k1;
};

static __always_inline __u64 siphash_rotate(__u64 x, int by)
{
	return x << by | x >> (64 - by);
}

struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline void siphash_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v1 = siphash_rotate(s->v1, 13) ^ s->v0;
	s->v0 = siphash_rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = siphash_rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = siphash_rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = siphash_rotate(s->v1, 17) ^ s->v2;
	s->v2 = siphash_rotate(s->v2, 32);
}

static __always_inline void siphash_absorb(struct siphash *s, __u64 word)
{
	s->v3 ^= word;
	siphash_round(s);
	siphash_round(s);
	s->v0 ^= word;
}

/* Words are in host order: the object is for little-endian hosts. */
static __always_inline __u64 siphash(const struct siphash_key *key,
				     const __u64 word[SIPHASH_WORDS])
{
	struct siphash s = {
		.v0 = key->k0 ^ 0x736f6d6570736575ULL,
		.v1 = key->k1 ^ 0x646f72616e646f6dULL,
		.v2 = key->k0 ^ 0x6c7967656e657261ULL,
		.v3 = key->k1 ^ 0x7465646279746573ULL,
	};

#pragma unroll
	for (int i = 0; i < SIPHASH_WORDS; i++)
		siphash_absorb(&s, word[i]);
	siphash_absorb(&s, (__u64)SIPHASH_BYTES << 56);
	s.v2 ^= 0xff;
#pragma unroll
	for (int i = 0; i < 4; i++)
		siphash_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

#endif
