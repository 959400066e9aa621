/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_PROBE_H
#define FENCELINE_PROBE_H

enum probe {
	PROBE_MARK = 0x464c5031, /* SO_MARK of this node's own probes */
};

#endif
