/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every other header builds on: the kernel's types and BPF helpers. */
#ifndef FENCELINE_KERNEL_H
#define FENCELINE_KERNEL_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

typedef _Bool bool;
enum {
	false,
	true
};

/*
 * Verdicts: TCX_NEXT and TCX_DROP, the same numbers as TC_ACT_UNSPEC and
 * TC_ACT_SHOT. PASS lets the programs behind ours see the frame as well.
 */
enum verdict {
	PASS = -1,
	DROP = 2,
};

#endif
