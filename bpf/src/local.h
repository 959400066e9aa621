/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Frames of this node's pods by their MAC, where the guard of their interface
 * may not have seen them: raw sockets with PACKET_QDISC_BYPASS, interfaces that
 * the pod has stacked on its own, and filters of the pod behind the guard.
 */
#ifndef FENCELINE_LOCAL_H
#define FENCELINE_LOCAL_H

#include "claim.h"
#include "parent.h"
#include "usual.h"

#define LOCALS_MAX 32768

/* A pod on a VLAN is tagged on the parent. */
enum local_segment {
	EVERY_SEGMENT,
};

struct local_key {
	__u32 segment;
	struct mac mac;
	__u16 pad;
};

enum local_slot {
	LOCAL_NODE = 0xffff,	  /* a device of the node */
	LOCAL_STRANGER = 0x10000, /* in no map */
};

/*
 * The slot, LOCAL_NODE, or 0 for a pod without a guard, and for MACs that a
 * slot has beside its own, but see SOURCES_TURNS. A slot with the parent's MAC
 * (ipvlan) has the entry of its network namespace. Written by user space only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCALS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct local_key);
	__type(value, __u32);
} locals SEC(".maps");

/*
 * The locals again, by a hash of the MAC: a lookup here is thirty times as
 * fast. An entry has the MAC and the slot of one local, as speaker_of() writes
 * them. Other MACs of this hash are in the other map.
 */
enum local_index_entry {
	LOCAL_ASK,    /* only the other map knows */
	LOCAL_NOBODY, /* no MAC of this hash has a slot, no parent is exclusive
		       */
	LOCAL_INDEX = 16384, /* the number of entries */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCAL_INDEX);
	__type(key, __u32);
	__type(value, __u64);
} local_index SEC(".maps");

static __always_inline __u64 local_entry_of(const struct mac *mac)
{
	__u32 hash = mac->part[0] ^ mac->part[1] ^ mac->part[2];
	const volatile __u64 *entry;

	hash = (hash ^ hash >> 8) % LOCAL_INDEX;
	entry = bpf_map_lookup_elem(&local_index, &hash);
	return entry ? *entry : LOCAL_ASK;
}

/* The slot of the entry, if the entry is of this MAC on this segment. */
static __always_inline const struct slot *
local_slot_of(__u32 segment, __u64 entry, const struct mac *mac)
{
	__u32 index = entry >> 48;
	const struct slot *s;

	if (!index || entry != speaker_of(mac, index))
		return 0;
	s = slot_of(index);
	return s && s->segment == segment ? s : 0;
}

static __always_inline const __u32 *local_of(__u32 of, const struct mac *mac)
{
	struct local_key key = { .segment = of, .mac = *mac };

	return bpf_map_lookup_elem(&locals, &key);
}

/* A network namespace as a MAC: a group's, which no frame has as its source. */
static __always_inline struct mac local_netns(__u32 netns)
{
	return (struct mac){ { bpf_htons(0x0100), netns >> 16, netns } };
}

/*
 * Returns the slot of a MAC on a segment, and sets s to it; 0 for a MAC whose
 * frames pass, LOCAL_NODE for one of a device of the node, perhaps on another
 * parent, and LOCAL_STRANGER for one that is not known.
 */
static __always_inline __u32 local_find(__u32 segment, const struct mac *from,
					const struct slot **s)
{
	__u64 entry = local_entry_of(from);
	__u32 index = entry >> 48;
	const __u32 *l;

	*s = 0;
	if (entry == LOCAL_NOBODY)
		return 0;
	*s = local_slot_of(segment, entry, from);
	if (!*s) {
		if (index == LOCAL_NODE &&
		    entry == speaker_of(from, LOCAL_NODE))
			return LOCAL_NODE;
		l = local_of(segment, from);
		if (!l)
			return LOCAL_STRANGER;
		index = *l;
		*s = slot_of(index);
	}
	return index;
}

/*
 * While an address is fenced, a MAC that another node may share is not checked
 * here: its frames may be those of the other node.
 */
static __always_inline int local_judge(struct __sk_buff *skb,
				       const struct frame *f, __u32 index,
				       const struct slot *s, __u32 segment,
				       enum where where)
{
	if (!s || !s->sources)
		return PASS;
	if (where == GUARD_INGRESS &&
	    (s->status == SLOT_DEAD ||
	     (s->sources & SOURCES_SHARED_MAC && gate_is_open())))
		return PASS;
	if (where == GUARD_INGRESS && s->sources & SOURCES_TURNS) {
		const struct mac from = frame_macs_of(skb).from;

		if (!mac_equal(&from, &s->mac))
			return PASS;
	}
	if (f->proto == bpf_htons(CLAIM_ETHERTYPE))
		return drop(where, CLAIM_FROM_POD);
	if (s->segment == segment && usual_is(skb, f, s, false))
		return PASS;
	return judge(skb, index, where, f->l3, f->proto);
}

#endif
