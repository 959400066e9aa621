/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The source guard: what a pod may claim to be, and what it did instead. */
#ifndef FENCELINE_SOURCE_H
#define FENCELINE_SOURCE_H

#include "event.h"
#include "speaker.h"
#include "slot.h"

#define ALLOWED_MAX	    65536
#define OFFENCES_MAX	    16384

#define OFFENCE_INTERVAL_NS 1000000000ULL /* per slot, result and mode */

enum source_prefix {
	PREFIX_OF_KEY = 32, /* the bits of the slot in a source_key */
};

/*
 * The value of an entry. An IPv6 prefix of fewer than 96 bits may cover the
 * IPv4-mapped addresses, and allows none of them. Longer ones of IPv4 are found
 * first.
 */
enum source_family {
	SOURCE_ANY = 1,
	SOURCE_IPV6 = 2,
};

/* Addresses without a lease that a slot may use: of the pool, link-local. */
struct source_key {
	__u32 prefix; /* in bits, with PREFIX_OF_KEY */
	__u32 slot;
	struct addr addr;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, ALLOWED_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_key);
	__type(value, __u8);
} sources SEC(".maps");

/* The MACs other than its own that a slot may use; the value is not used. */
struct source_mac {
	__u32 slot;
	struct mac mac;
	__u16 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ALLOWED_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct source_mac);
	__type(value, __u8);
} source_macs SEC(".maps");

/* What a slot did against its source guard. Written by the kernel. */
struct offence_key {
	__u32 slot;
	__u16 result;
	__u16 observed; /* 1: the frame passed */
};

struct offence {
	__u64 frames;
	__u64 event_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OFFENCES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct offence_key);
	__type(value, struct offence);
} offences SEC(".maps");

/* Whose frame is judged. */
struct suspect {
	__u32 slot;
	__u32 segment;
	__u32 sources;
	bool on_link; /* a host link: leased addresses, and those of its pool */
	bool dead;
	struct mac mac;
};

/* where, with this flag for a host link */
#define WHERE_HOST_LINK (1 << 8)

/* where, with this flag for ARP and ND, which give the address a MAC */
#define WHERE_GIVES_MAC (1 << 10)

static __always_inline struct suspect suspect_of(__u32 slot, __u32 where)
{
	const struct slot *s = slot_of(slot);
	struct suspect who = { .slot = slot,
			       .on_link = where & WHERE_HOST_LINK };

	if (s) {
		who.segment = s->segment;
		who.dead = s->status == SLOT_DEAD;
		who.sources = s->sources;
		who.mac = s->mac;
	}
	return who;
}

/* True once an interval. A lost race costs one event more. */
static __always_inline bool offence_is_due(struct offence *o, __u64 now)
{
	if (o->event_ns && now - o->event_ns < OFFENCE_INTERVAL_NS)
		return false;
	o->event_ns = now;
	return true;
}

/* Counts a frame against a slot, and tells the agent now and then. */
static __always_inline void
offence_record(__u32 slot, __u32 segment, enum result why, const struct addr *a,
	       const struct mac *mac, enum where where, bool observed)
{
	struct offence_key key = { .slot = slot,
				   .result = why,
				   .observed = observed };
	struct offence *o = bpf_map_lookup_elem(&offences, &key);
	__u64 now = bpf_ktime_get_boot_ns();
	struct event e = {
		.ns = now,
		.token = slot,
		.mine = why | (__u64)observed << 16,
		.key = lease_key_of(segment, a),
		.type = EVENT_SOURCE,
		.where = where,
		.by = speaker_of(mac, 0),
	};

	if (!o) {
		struct offence first = {};

		bpf_map_update_elem(&offences, &key, &first, BPF_NOEXIST);
		o = bpf_map_lookup_elem(&offences, &key);
		if (!o)
			return;
	}
	__sync_fetch_and_add(&o->frames, 1);
	if (offence_is_due(o, now))
		event_send(&e);
}

static __always_inline bool source_mac_is_own(const struct suspect *who,
					      const struct mac *mac)
{
	struct source_mac key = { .slot = who->slot, .mac = *mac };

	return mac_equal(&who->mac, mac) ||
	       bpf_map_lookup_elem(&source_macs, &key);
}

/* Returns why an address without a lease may not be used. */
static __always_inline enum result source_unleased(const struct suspect *who,
						   const struct addr *a)
{
	struct source_key key = { .prefix = PREFIX_OF_KEY + 128,
				  .slot = who->slot,
				  .addr = *a };
	const __u8 *family;

	/* Link-local addresses are for the pod's interface. */
	if (who->on_link && (!who->sources || addr_is_link_local(a)))
		return DROP_UNLEASED;
	if (!who->sources)
		return ALLOWED;
	family = bpf_map_lookup_elem(&sources, &key);
	if (family && (*family != SOURCE_IPV6 || !addr_is_mapped(a)))
		return ALLOWED;
	if (who->on_link)
		return DROP_UNLEASED;
	if (addr_is_link_local(a))
		return DROP_LINK_LOCAL;
	return addr_is_unspecified(a) ? DROP_UNSPECIFIED : DROP_UNLEASED;
}

__noinline int source_judge(__u32 slot, __u32 where, __u64 high, __u64 low)
{
	struct suspect who = suspect_of(slot, where);
	struct addr a = addr_of(high, low);
	struct lease_key key = lease_key_of(who.segment, &a);
	const struct lease *l = lease_of(&key);
	bool held = l && lease_is_held(l);
	enum result why;

	if (!held ||
	    (l->slot != who.slot && !slot_is_beside(who.slot, l->slot))) {
		why = source_unleased(&who, &a);
		/* The slot may take the turn: a hard objection until then. */
		if (why == ALLOWED && l && l->flags & LEASE_TURNS)
			return DROP_TURN;
		return held ? DROP_SLOT : why;
	}
	if (state_is_fenced(&key, l))
		return DROP_FENCED;
	/* Another interface of the pod has the address, and its MAC. */
	return l->slot != who.slot && where & WHERE_GIVES_MAC ? DROP_MAC
							      : ALLOWED;
}

/* Returns why the slot may not use the address, or ALLOWED. */
static __always_inline enum result source_objection(const struct suspect *who,
						    const struct addr *a)
{
	return source_judge(who->slot, who->on_link ? WHERE_HOST_LINK : 0,
			    ADDR_HALVES(a));
}

/* The same for ARP and ND. */
static __always_inline enum result source_gives(const struct suspect *who,
						const struct addr *a)
{
	return source_judge(who->slot,
			    (who->on_link ? WHERE_HOST_LINK : 0) |
				    WHERE_GIVES_MAC,
			    ADDR_HALVES(a));
}

/* A soft objection is the pool's: mode Observe lets the frame pass. */
static __always_inline bool source_is_soft(enum result why)
{
	return why == DROP_ETHER || why == DROP_SENDER_MAC ||
	       why == DROP_LINK_LOCAL || why == DROP_UNSPECIFIED ||
	       why == DROP_UNLEASED;
}

/* A hard objection replaces any other, and a soft one replaces none. */
static __always_inline enum result source_worse(enum result first,
						enum result then)
{
	if (then == ALLOWED || (first != ALLOWED && source_is_soft(then)))
		return first;
	return then;
}

#endif
