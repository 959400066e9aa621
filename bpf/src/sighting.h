/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sightings: the last speaker of each address. Hints, not proof. */
#ifndef FENCELINE_SIGHTING_H
#define FENCELINE_SIGHTING_H

#include "lease.h"
#include "speaker.h"

#define SIGHTINGS_MAX 16384
#define VOUCHED_MAX   1024

/* Times are CLOCK_BOOTTIME in ns. A prober does not use the address yet. */
struct sighting {
	__u64 ns, by;
	__u64 probe_ns, probe_by;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SIGHTINGS_MAX);
	__type(key, struct lease_key);
	__type(value, struct sighting);
} sightings SEC(".maps");

/*
 * When an authentic claim of another node last came in for the address. A host
 * that was only heard may be one of this node.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, VOUCHED_MAX);
	__type(key, struct lease_key);
	__type(value, __u64);
} vouched SEC(".maps");

static __always_inline void sighting_record(const struct lease_key *key,
					    const struct speech *s, __u64 now)
{
	__u64 by = speaker_of(&s->mac, s->kind);
	struct sighting *known = bpf_map_lookup_elem(&sightings, key);
	struct sighting fresh = {};

	if (!known)
		known = &fresh;
	if (speech_is_tentative(s)) {
		known->probe_by = by;
		known->probe_ns = now;
	} else {
		known->by = by;
		known->ns = now;
	}
	if (known == &fresh)
		bpf_map_update_elem(&sightings, key, &fresh, BPF_NOEXIST);
}

/* An authentic claim shows that its address is in use, but not by which MAC. */
static __always_inline void sighting_claimed(const struct lease_key *key,
					     const struct mac *from, __u64 now)
{
	struct sighting fresh = {
		.ns = now,
		.by = speaker_of(from, KIND_CLAIM),
	};

	bpf_map_update_elem(&sightings, key, &fresh, BPF_NOEXIST);
	bpf_map_update_elem(&vouched, key, &now, BPF_ANY);
}

#endif
