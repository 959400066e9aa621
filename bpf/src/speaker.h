/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_SPEAKER_H
#define FENCELINE_SPEAKER_H

#include "speech.h"

/*
 * MAC (bytes 0 to 5) and kind (6 and 7) of a speaker in one word, so that a
 * reader on another CPU never sees a mix of two speakers.
 */
static __always_inline __u64 speaker_of(const struct mac *mac, __u16 kind)
{
	union {
		struct {
			struct mac mac;
			__u16 kind;
		};
		__u64 whole;
	} speaker = { .whole = 0 };

	speaker.mac = *mac;
	speaker.kind = kind;
	return speaker.whole;
}

/*
 * The reverse of speaker_of(): the speech about an address, for functions that
 * take scalars. Its sender and its target are zero.
 */
static __always_inline struct speech speech_of(__u64 high, __u64 low, __u64 by)
{
	struct speech s = { .subject = addr_of(high, low) };

	s.mac.part[0] = by;
	s.mac.part[1] = by >> 16;
	s.mac.part[2] = by >> 32;
	s.kind = by >> 48;
	return s;
}

#endif
