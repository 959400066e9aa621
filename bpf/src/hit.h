/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Hits: a foreign MAC uses an address that is leased or watched here. */
#ifndef FENCELINE_HIT_H
#define FENCELINE_HIT_H

#include "event.h"
#include "speaker.h"
#include "state.h"

static __always_inline void hit_event(const struct lease_key *key,
				      const struct lease *l, __u64 by,
				      __u64 now, enum where where)
{
	struct event e = {
		.ns = now,
		.mine = l->token,
		.key = *key,
		.type = EVENT_HIT,
		.where = where,
		.by = by,
	};

	event_send(&e);
}

/* Events for new speakers within one interval, besides the first. */
#define HIT_NEWS_MAX 8

/*
 * Like event_due(), without the jiffy, and also true for a new speaker,
 * HIT_NEWS_MAX times per interval: a proxy that answers first must not hide
 * another host's answer.
 */
static __always_inline bool hit_is_due(struct state *st, __u64 *last, bool news,
				       __u64 now, enum where where)
{
	bool due = false;

	if (news || event_has_aged(*(volatile __u64 *)last, now)) {
		bpf_spin_lock(&st->lock);
		if (event_has_aged(*last, now)) {
			*last = now;
			st->news = 0;
			due = true;
		} else if (news && st->news < HIT_NEWS_MAX) {
			st->news++;
			due = true;
		}
		bpf_spin_unlock(&st->lock);
	}
	if (!due)
		count(where, SUPPRESSED);
	return due;
}

/*
 * Frames from the new holder of an address that is fenced here are no hits: the
 * agent must not defend the address against its rightful holder. They are hits
 * while the lease is unproven: there may be no such holder. A watched address
 * counts as not fenced, whatever was claimed before.
 */
static __always_inline bool hit_is_rightful(const struct lease *l,
					    const struct state *st)
{
	return lease_is_held(l) && !(l->flags & LEASE_UNPROVEN) &&
	       state_fences(st, l);
}

/* Notes the speaker, and reports whether an event is due. */
static __always_inline bool hit_note(struct state *st, __u64 by, __u64 now,
				     enum where where)
{
	__u64 there = by | (__u64)where << 56;
	bool news = st->hit_by != there;

	st->hit_by = there;
	st->hit_ns = now;
	__sync_fetch_and_add(&st->hits, 1);
	return hit_is_due(st, &st->hit_event_ns, news, now, where);
}

static __always_inline void hit_record(const struct lease_key *key,
				       const struct lease *l,
				       const struct speech *s, __u64 now,
				       enum where where)
{
	__u64 by = speaker_of(&s->mac, s->kind);
	__u64 there = by | (__u64)where << 56;
	struct state *st;
	bool due;

	if (!lease_is_foreign(l, &s->mac))
		return;
	st = state_of(key);
	if (!st || hit_is_rightful(l, st))
		return;
	count(where, HIT);
	if (speech_is_tentative(s)) {
		bool news = st->probe_by != there;

		st->probe_by = there;
		st->probe_ns = now;
		__sync_fetch_and_add(&st->probes, 1);
		due = hit_is_due(st, &st->probe_event_ns, news, now, where);
	} else {
		due = hit_note(st, by, now, where);
	}
	if (due)
		hit_event(key, l, by, now, where);
}

#endif
