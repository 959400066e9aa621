/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Leases: which slot may use an address. Written by user space only. */
#ifndef FENCELINE_LEASE_H
#define FENCELINE_LEASE_H

#include "addr.h"
#include "mac.h"

#define LEASES_MAX	 16384
#define DISPROVED_BEFORE 7

struct lease_key {
	__u32 segment; /* the parent's ifindex */
	struct addr addr;
};

struct lease {
	__u64 token;
	__u64 network;
	__u32 slot; /* the holder; 0: watched, not held here */
	__u32 flags;
	struct mac mac; /* the holder's; zero if watched */
	__u16 pad;
	/*
	 * No host uses this token: a renewal has found no speaker. Claims with
	 * it do nothing. 0: none.
	 */
	__u64 disproved;
	/* Tokens that earlier renewals disproved. */
	__u64 disproved_before[DISPROVED_BEFORE];
};

enum lease_flag {
	/* Another node's holder of the address may have the same MAC. */
	LEASE_SHARED_MAC = 1 << 0,
	/* The holder is down: a frame with its MAC is another host's. */
	LEASE_DOWN = 1 << 1,
	/* Fenced, until it is proven that nobody else speaks. */
	LEASE_UNPROVEN = 1 << 2,
	/* Neither a guard nor the PF enforces the fence: no ack. */
	LEASE_UNGUARDED = 1 << 3,
	/* The holder is a VF: its frames pass its guard, but no observer. */
	LEASE_VF = 1 << 4,
	/* A virtual address of which one pod has the turn: the holder, if any.
	 */
	LEASE_TURNS = 1 << 5,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LEASES_MAX);
	__type(key, struct lease_key);
	__type(value, struct lease);
} leases SEC(".maps");

static __always_inline struct lease_key lease_key_of(__u32 segment,
						     const struct addr *a)
{
	return (struct lease_key){ .segment = segment, .addr = *a };
}

static __always_inline struct lease *lease_of(const struct lease_key *key)
{
	return bpf_map_lookup_elem(&leases, key);
}

static __always_inline bool lease_is_held(const struct lease *l)
{
	return l->slot;
}

/* Reports whether a frame with this MAC is not the holder's. */
static __always_inline bool lease_is_foreign(const struct lease *l,
					     const struct mac *mac)
{
	return l->flags & LEASE_DOWN || !mac_equal(&l->mac, mac);
}

#endif
