//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SipHash for a test: the frame contains key and message, and gets the hash. */
#include "siphash.h"

char __license[] SEC("license") = "Dual BSD/GPL";

struct exchange {
	struct siphash_key key;
	__u64 message[SIPHASH_WORDS];
};

SEC("tc")
int siphash_frame(struct __sk_buff *skb)
{
	struct exchange in;
	__u64 hash;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &in, sizeof(in)))
		return DROP;
	hash = siphash(&in.key, in.message);
	if (bpf_skb_store_bytes(skb, ETH_HLEN, &hash, sizeof(hash), 0))
		return DROP;
	return PASS;
}
