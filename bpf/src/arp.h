/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef FENCELINE_ARP_H
#define FENCELINE_ARP_H

#include "frame.h"
#include "speech.h"

#define ARP_HRD_ETHER	1
#define ARP_HRD_IEEE802 6 /* Linux takes it for Ethernet (arp_process()) */
#define ARP_OP_REQUEST	1
#define ARP_OP_REPLY	2

/* RFC 826 for IPv4 over Ethernet. */
struct arp {
	__be16 hrd, pro;
	__u8 hln, pln;
	__be16 op;
	struct mac sha;
	__be32 spa;
	struct mac tha;
	__be32 tpa;
} __attribute__((packed, aligned(2)));

/*
 * Hosts learn the sender from requests, replies and announcements alike. But
 * only a reply to a probe, whose sender address is 0, shows that its sender has
 * heard one.
 */
static __always_inline enum clarity
arp_parse(struct __sk_buff *skb, const struct frame *f, struct speech *s)
{
	const struct mac question = { QUESTION_MAC };
	struct arp arp;

	if (!frame_payload(skb, f, 0, &arp, sizeof(arp)))
		return UNCLEAR;
	if ((arp.hrd != bpf_htons(ARP_HRD_ETHER) &&
	     arp.hrd != bpf_htons(ARP_HRD_IEEE802)) ||
	    arp.pro != bpf_htons(ETH_P_IP) || arp.hln != sizeof(struct mac) ||
	    arp.pln != sizeof(arp.spa))
		return UNCLEAR;
	s->sender = addr_of_v4(arp.spa);
	s->target = addr_of_v4(arp.tpa);
	s->subject = arp.spa ? s->sender : s->target;
	s->kind = KIND_ARP;
	if (!arp.spa)
		s->kind = KIND_ARP_PROBE;
	else if (arp.op == bpf_htons(ARP_OP_REPLY) && !arp.tpa)
		s->kind = KIND_ARP_REPLY;
	s->mac = arp.sha;
	if (!arp.spa && (!arp.tpa || arp.op != bpf_htons(ARP_OP_REQUEST) ||
			 mac_equal(&arp.tha, &question)))
		return SILENT;
	return CLEAR;
}

#endif
