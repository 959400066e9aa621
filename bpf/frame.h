/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* An Ethernet frame as tc sees it, and safe ways to read it. */
#ifndef FENCELINE_FRAME_H
#define FENCELINE_FRAME_H

#include "kernel.h"
#include "mac.h"

#ifndef ETH_P_CLAIM
#define ETH_P_CLAIM 0x88B5 /* IEEE 802 local experimental ethertype 1 */
#endif

#define VLAN_VID_MASK 0x0fff
#define VLAN_TAGS_MAX 2

struct frame {
	__be16 proto; /* ethertype behind the tags */
	__u32 l3;     /* where the payload begins */
	bool tagged;  /* a VLAN identifier other than 0: another segment's */
};

struct frame_macs {
	struct mac to, from;
};

/*
 * Loaded by hand: from plain C clang keeps a zero-extended copy ("w2 = w2"),
 * after which the verifier takes the pointer for a number.
 */
static __always_inline void *frame_start(const struct __sk_buff *skb)
{
	void *p;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(p)
		     : "r"(skb),
		       "i"(__builtin_offsetof(struct __sk_buff, data)));
	return p;
}

static __always_inline void *frame_end(const struct __sk_buff *skb)
{
	void *p;

	asm volatile("%0 = *(u32 *)(%1 + %2)"
		     : "=r"(p)
		     : "r"(skb),
		       "i"(__builtin_offsetof(struct __sk_buff, data_end)));
	return p;
}

/*
 * Copies len bytes at a constant offset to a 2-aligned place. Directly where
 * the linear part reaches that far, by helper where a driver left the bytes in
 * a fragment.
 */
static __always_inline bool frame_read(struct __sk_buff *skb, const __u32 off,
				       void *to, const __u32 len)
{
	void *p = frame_start(skb) + off;

	if (p + len > frame_end(skb))
		return !bpf_skb_load_bytes(skb, off, to, len);
	__builtin_memcpy(__builtin_assume_aligned(to, 2),
			 __builtin_assume_aligned(p, 2), len);
	return true;
}

/* The same at an offset into the payload, which tags may have moved. */
static __always_inline bool frame_payload(struct __sk_buff *skb,
					  const struct frame *f,
					  const __u32 off, void *to,
					  const __u32 len)
{
	if (f->l3 == ETH_HLEN)
		return frame_read(skb, ETH_HLEN + off, to, len);
	return !bpf_skb_load_bytes(skb, f->l3 + off, to, len);
}

static __always_inline bool frame_is_vlan(__be16 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) ||
	       proto == bpf_htons(ETH_P_8021AD);
}

/* A frame that was opened has both. */
static __always_inline struct frame_macs frame_macs_of(struct __sk_buff *skb)
{
	struct frame_macs macs = {};

	frame_read(skb, 0, &macs, sizeof(macs));
	return macs;
}

/*
 * Finds the ethertype and steps over VLAN tags. The ethertype comes from
 * the frame itself: skb->protocol is whatever a raw socket says it is. VID 0 is
 * a priority, not a VLAN (IEEE 802.1Q, 9.6): such a frame counts as untagged.
 */
static __always_inline bool frame_open(struct __sk_buff *skb, struct frame *f)
{
	if (!frame_read(skb, ETH_ALEN * 2, &f->proto, sizeof(f->proto)))
		return false;
	f->l3 = ETH_HLEN;
	f->tagged = skb->vlan_present && (skb->vlan_tci & VLAN_VID_MASK);
#pragma unroll
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		struct {
			__be16 tci, proto;
		} vlan;

		if (!frame_is_vlan(f->proto))
			break;
		if (bpf_skb_load_bytes(skb, f->l3, &vlan, sizeof(vlan)))
			return false;
		if (vlan.tci & bpf_htons(VLAN_VID_MASK))
			f->tagged = true;
		f->proto = vlan.proto;
		f->l3 += sizeof(vlan);
	}
	return true;
}

#endif
