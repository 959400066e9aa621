/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Ethernet frames as tc sees them. */
#ifndef FENCELINE_FRAME_H
#define FENCELINE_FRAME_H

#include "kernel.h"
#include "mac.h"

#define VLAN_VID_MASK 0x0fff
#define VLAN_TAGS_MAX 2

struct frame {
	__be16 proto; /* ethertype after the VLAN tags */
	__u32 l3;     /* offset of the payload */
	bool tagged;  /* VLAN ID is not 0: another segment */
};

struct frame_macs {
	struct mac to, from;
};

/*
 * In assembly, because clang zero-extends a copy of the pointer ("w2 = w2") at
 * -mcpu=v3, and the verifier takes the copy for a scalar.
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
 * Copies len bytes at a constant offset to a 2-aligned destination: directly
 * from the linear part, or by helper if a driver left the bytes in a fragment.
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

/* The same for an offset into the payload, which VLAN tags shift. */
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

/* For a frame that frame_open() accepted, which has both MACs. */
static __always_inline struct frame_macs frame_macs_of(struct __sk_buff *skb)
{
	struct frame_macs macs = {};

	frame_read(skb, 0, &macs, sizeof(macs));
	return macs;
}

/*
 * Skips VLAN tags and reads the ethertype. It comes from the frame itself: a
 * raw socket may set skb->protocol to any value. VLAN ID 0 is a priority tag
 * (IEEE 802.1Q, 9.6): such a frame counts as untagged. Linux takes off any
 * number of them. A frame with more than VLAN_TAGS_MAX keeps the ethertype of a
 * tag, and nothing behind it was read.
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
