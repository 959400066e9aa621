/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Speech: which MAC uses which address, according to one frame. */
#ifndef FENCELINE_SPEECH_H
#define FENCELINE_SPEECH_H

#include "addr.h"
#include "mac.h"

/* The kind of frame. */
enum kind {
	KIND_ARP = 1,
	KIND_ARP_PROBE = 2,
	KIND_NA = 3,
	KIND_NS = 4,
	KIND_DAD = 5,
	KIND_IP = 6,
	KIND_ARP_REPLY = 7,
	KIND_CLAIM = 8,
	KIND_ANNOUNCES = 1 << 7, /* a flag beside the kind of a hit */
};

struct speech {
	struct addr sender;  /* network-layer source, ARP sender */
	struct addr subject; /* the address used or probed */
	struct addr target;  /* network-layer destination, ARP target */
	struct mac mac;	     /* the speaker's */
	__u16 kind;
};

/* How well a frame was understood. */
enum clarity {
	SILENT,	 /* the frame uses no address */
	CLEAR,	 /* the speech is filled in */
	UNCLEAR, /* truncated, too complex or malformed */
};

/*
 * A question to a canary (agent/segment/canary.go) has the form of a probe, but
 * its sender does not want the address: it speaks for nobody. The marks are the
 * target hardware address of ARP, and the flow label of IPv6, as in
 * internal/frames.
 */
#define QUESTION_MAC                                    \
	{                                               \
		bpf_htons(0x464c), bpf_htons(0x513f), 0 \
	}
#define QUESTION_FLOW bpf_htonl(0x464c5)
#define FLOW_MASK     bpf_htonl(0xfffff)

/* A tentative frame probes the subject (RFC 5227, RFC 4862). */
static __always_inline bool speech_is_tentative(const struct speech *s)
{
	return s->kind == KIND_ARP_PROBE || s->kind == KIND_DAD;
}

/* KIND_ANNOUNCES for a frame that nobody asked for: gratuitous ARP, NA to all.
 */
static __always_inline __u16 speech_announces(const struct speech *s)
{
	if (s->kind == KIND_NA)
		return (s->target.word[0] & bpf_htonl(0xff000000)) ==
				       bpf_htonl(0xff000000)
			       ? KIND_ANNOUNCES
			       : 0;
	return s->kind == KIND_ARP && s->sender.word[3] == s->target.word[3]
		       ? KIND_ANNOUNCES
		       : 0;
}

/* Reports whether subject and sender are different fields of the frame. */
static __always_inline bool speech_has_own_subject(const struct speech *s)
{
	return s->kind == KIND_NA || speech_is_tentative(s);
}

#endif
