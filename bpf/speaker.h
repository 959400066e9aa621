/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_SPEAKER_H
#define FENCELINE_SPEAKER_H

#include "speech.h"

/*
 * Who spoke and how, in one word, so that readers on other CPUs never see half
 * of one speaker and half of another: MAC in bytes 0 to 5, kind in 6 and 7.
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

#endif
