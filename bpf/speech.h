/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What one frame says: who speaks for which address, and to which. */
#ifndef FENCELINE_SPEECH_H
#define FENCELINE_SPEECH_H

#include "addr.h"
#include "mac.h"

/* By which sort of frame. Keep in sync with kind.go. */
enum kind {
	KIND_ARP = 1,
	KIND_ARP_PROBE = 2,
	KIND_NA = 3,
	KIND_NS = 4,
	KIND_DAD = 5,
	KIND_IP = 6,
};

struct speech {
	struct addr sender;  /* network-layer source, ARP sender */
	struct addr subject; /* the address spoken for, or asked for */
	struct addr target;  /* whom the frame is for */
	struct mac mac;	     /* who speaks */
	__u16 kind;
};

/* How well a frame was understood. */
enum clarity {
	SILENT,	 /* speaks for no address */
	CLEAR,	 /* the speech is filled in */
	UNCLEAR, /* truncated or built to be hard to read */
};

/* A tentative frame asks whether the subject is in use (RFC 5227, RFC 4862). */
static __always_inline bool speech_is_tentative(const struct speech *s)
{
	return s->kind == KIND_ARP_PROBE || s->kind == KIND_DAD;
}

/* The frame names an address besides the one it is sent from. */
static __always_inline bool speech_has_own_subject(const struct speech *s)
{
	return s->kind == KIND_NA || speech_is_tentative(s);
}

#endif
