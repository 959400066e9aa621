/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's types and BPF helpers, for all other headers.
 *
 * The verifier walks a function without static once, and not for each path that
 * leads to it. On Linux 5.10 such a function takes the context and scalars,
 * five at most, and the stack of a chain of calls has 512 bytes.
 */
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
 * TC_ACT_SHOT. After PASS the later programs of the chain see the frame too.
 */
enum verdict {
	PASS = -1,
	DROP = 2,
};

#endif
