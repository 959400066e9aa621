/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_MAC_H
#define FENCELINE_MAC_H

#include "kernel.h"

struct mac {
	__be16 part[3];
};

static __always_inline bool mac_equal(const struct mac *a, const struct mac *b)
{
	return !((a->part[0] ^ b->part[0]) | (a->part[1] ^ b->part[1]) |
		 (a->part[2] ^ b->part[2]));
}

#endif
