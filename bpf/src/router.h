/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The protocols between routers, and the link-local groups that are not for
 * hosts. docs/pools.md has the table.
 */
#ifndef FENCELINE_ROUTER_H
#define FENCELINE_ROUTER_H

#include "addr.h"
#include "upper.h"

#define NEXT_EIGRP 88
#define NEXT_OSPF  89
#define NEXT_PIM   103
#define NEXT_VRRP  112 /* and CARP */

static __always_inline bool router_speaks(__u8 proto)
{
	return proto == NEXT_EIGRP || proto == NEXT_OSPF || proto == NEXT_PIM ||
	       proto == NEXT_VRRP;
}

/* Reports of listeners go to the group itself. ICMP has its own rules. */
static __always_inline bool router_ignores(__u8 proto)
{
	return proto == NEXT_ICMP || proto == NEXT_IGMP || proto == NEXT_ICMPV6;
}

/* 224.0.0.0/24 without all hosts, IGMPv3, PTP's peer delay, mDNS and LLMNR. */
static __always_inline bool router_hears4(__be32 to)
{
	__u32 group = bpf_ntohl(to);

	if (group >> 8 != 0xe00000)
		return false;
	group &= 0xff;
	return group != 1 && group != 22 && group != 107 && group != 251 &&
	       group != 252;
}

/*
 * The permanent groups of ff02::/16 without all nodes, SSDP, MLDv2, PTP's peer
 * delay, mDNS, DHCP servers, LLMNR and solicited nodes.
 */
__noinline int router_hears6(__u64 high, __u64 low)
{
	const struct addr to = addr_of(high, low);
	__u32 group = bpf_ntohl(to.word[3]);

	if ((to.word[0] & bpf_htonl(0xffff0000)) != bpf_htonl(0xff020000))
		return false;
	if (to.word[0] != bpf_htonl(0xff020000) || to.word[1])
		return true;
	if (to.word[2] == bpf_htonl(1))
		return group >> 24 != 0xff;
	return to.word[2] || (group != 0x1 && group != 0xc && group != 0x16 &&
			      group != 0x6b && group != 0xfb &&
			      group != 0x10002 && group != 0x10003);
}

#endif
