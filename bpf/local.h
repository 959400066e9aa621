/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of this node's pods by their MAC, where the guard of their interface
 * may not have seen them: raw sockets with PACKET_QDISC_BYPASS, and interfaces
 * that the pod has stacked on its own.
 */
#ifndef FENCELINE_LOCAL_H
#define FENCELINE_LOCAL_H

#include "claim.h"
#include "judge.h"
#include "parent.h"

#define LOCALS_MAX 32768

/* Segment 0 stands for every one: a pod on a VLAN is tagged on the parent. */
struct local_key {
	__u32 segment;
	struct mac mac;
	__u16 pad;
};

/*
 * The slot, or 0 for a device of the node or of a pod without a guard. Written
 * by user space only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCALS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct local_key);
	__type(value, __u32);
} locals SEC(".maps");

static __always_inline const __u32 *local_of(__u32 of, const struct mac *mac)
{
	struct local_key key = { .segment = of, .mac = *mac };

	return bpf_map_lookup_elem(&locals, &key);
}

/* A frame that leaves the node with a MAC that no device here has. */
static __always_inline int local_stranger(struct __sk_buff *skb,
					  const struct frame *f,
					  const struct mac *from)
{
	const struct parent *parent = parent_own();

	if (!parent || !(parent->flags & PARENT_STRICT) ||
	    parent->flags & PARENT_BRIDGE_PORT ||
	    mac_equal(&parent->mac, from) || local_of(0, from))
		return PASS;
	judge_record(skb, 0, DROP_STRANGER << 16 | OBSERVER_EGRESS, f->l3,
		     f->proto);
	return drop(OBSERVER_EGRESS, DROP_STRANGER);
}

/*
 * The parent's own MAC is none of a pod, see locals.go. A frame of a MAC that
 * another node's holder may have too is not judged where it may come from
 * there.
 */
static __always_inline int local_judge(struct __sk_buff *skb,
				       const struct frame *f,
				       const struct mac *from, enum where where)
{
	const __u32 *l = local_of(segment, from);
	const struct slot *s;

	if (!l)
		return where == OBSERVER_EGRESS ? local_stranger(skb, f, from)
						: PASS;
	s = slot_of(*l);
	if (!s || !s->sources)
		return PASS;
	if (where == GUARD_INGRESS &&
	    (s->sources & SOURCES_SHARED_MAC || s->status == SLOT_DEAD))
		return PASS;
	if (f->proto == bpf_htons(CLAIM_ETHERTYPE))
		return drop(where, CLAIM_FROM_POD);
	return judge(skb, *l, where, f->l3, f->proto);
}

#endif
