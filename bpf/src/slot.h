/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Slots: the guards of this node. Written by user space only. */
#ifndef FENCELINE_SLOT_H
#define FENCELINE_SLOT_H

#include "addr.h"
#include "mac.h"

enum slot_limit {
	SLOTS_MAX = 16384,
};

enum slot_status {
	SLOT_FREE,
	SLOT_ALIVE,
	SLOT_DEAD,
};

/* What the guard judges by, and the parameters for loading it again. */
struct slot {
	__u32 status;
	__u32 segment;
	__u32 flags;
	__u32 netns;	/* inode: ifindexes are unique only within it */
	__u32 sources;	/* SOURCES_*; 0: the source guard is off */
	struct mac mac; /* the interface's, if the source guard is on */
	__u16 pad;
	/*
	 * An IPv4 and an IPv6 address of the segment that are leased to the
	 * slot; 0: none is named here.
	 */
	__be32 leased4;
	struct addr leased6;
	__u32 host_link; /* ifindex of its node's end, 0 if there is none */
};

enum slot_flag {
	SLOT_VERIFY = 1 << 0,
};

enum source_flag {
	SOURCES_OBSERVE = 1 << 0,
	SOURCES_ENFORCE = 1 << 1,
	SOURCES_ROUTER = 1 << 2,      /* may act as a router */
	SOURCES_DHCP_SERVER = 1 << 3, /* may answer DHCP clients */
	SOURCES_TAGGED = 1 << 4,      /* may tag frames */
	SOURCES_BRIDGE = 1 << 5,      /* may send STP, LLDP and the like */
	SOURCES_SHARED_MAC = 1 << 6,  /* another node may have the MAC too */
	SOURCES_VRRP = 1 << 7,	      /* may send VRRP */
	/* The observer judges its other MACs too. Another node may have them.
	 */
	SOURCES_TURNS = 1 << 8,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS_MAX);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

static __always_inline const struct slot *slot_of(__u32 index)
{
	return bpf_map_lookup_elem(&slots, &index);
}

/* Reports whether two slots are living interfaces of one pod. */
static __always_inline bool slot_is_beside(__u32 index, __u32 other)
{
	const struct slot *s = slot_of(index), *o = slot_of(other);

	return s && o && s->netns && s->netns == o->netns &&
	       o->status == SLOT_ALIVE;
}

static __always_inline bool slot_is_dead(__u32 index)
{
	const struct slot *s = slot_of(index);

	return s && s->status == SLOT_DEAD;
}

#endif
