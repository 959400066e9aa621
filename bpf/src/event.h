/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Events for the agent. An event may be lost, a fence never is. */
#ifndef FENCELINE_EVENT_H
#define FENCELINE_EVENT_H

#include "counter.h"
#include "state.h"

#define EVENTS_BYTES	  (1 << 18)
#define EVENT_INTERVAL_NS 100000000LL /* per address and type */

enum event_type {
	EVENT_HIT = 1,
	EVENT_FENCED = 2,
	EVENT_ACK = 3,
	EVENT_OLD_CLAIM = 4,
	EVENT_SOURCE = 5, /* token: the slot, mine: the result */
	EVENT_TURN = 6,	  /* token: the slot */
};

struct event {
	__u64 ns;    /* CLOCK_BOOTTIME */
	__u64 token; /* of the claim or ack */
	__u64 mine;  /* of the lease */
	struct lease_key key;
	__u16 type;
	__u16 where;
	__u64 by; /* speaker */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, EVENTS_BYTES);
} events SEC(".maps");

static __always_inline bool event_has_aged(__u64 last, __u64 now)
{
	return !last || (__s64)(now - last) >= EVENT_INTERVAL_NS;
}

/*
 * Returns the time if an event is due, which it is once per interval. Otherwise
 * counts the event and returns 0. last is a field of st. Once an event was not
 * due, the clock is not read again within the jiffy: that costs as much as a
 * tag.
 */
static __always_inline __u64 event_due(struct state *st, __u64 *last,
				       enum where where)
{
	__u64 jiffy = bpf_jiffies64();
	bool due = false;
	__u64 now;

	if (*(volatile __u64 *)&st->quiet == jiffy) {
		count(where, SUPPRESSED);
		return 0;
	}
	now = bpf_ktime_get_boot_ns();
	if (event_has_aged(*(volatile __u64 *)last, now)) {
		bpf_spin_lock(&st->lock);
		due = event_has_aged(*last, now);
		if (due)
			*last = now;
		bpf_spin_unlock(&st->lock);
	}
	if (due)
		return now;
	count(where, SUPPRESSED);
	*(volatile __u64 *)&st->quiet = jiffy;
	return 0;
}

static __always_inline void event_send(const struct event *e)
{
	if (bpf_ringbuf_output(&events, (void *)e, sizeof(*e), 0))
		count(e->where, EVENT_LOST);
}

#endif
