/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Judges the frame of a pod, on its interface and wherever else it comes by. */
#ifndef FENCELINE_JUDGE_H
#define FENCELINE_JUDGE_H

#include "arp.h"
#include "ipv4.h"
#include "ipv6.h"
#include "router.h"
#include "source.h"
#include "turn.h"

#define ETH_P_QINQ1   0x9100
#define ETH_P_QINQ2   0x9200

#define DHCP_CLIENT   bpf_htons(68)
#define DHCPV6_CLIENT bpf_htons(546)

enum icmp_type {
	ICMP_REDIRECT = 5,
	ICMP_ROUTER = 9, /* RFC 1256 */
};

enum icmpv6_type {
	MLD_QUERY = 130,
	MLD_REPORT = 131,
	MLD_DONE = 132,
	MLD2_REPORT = 143,
	MRD_ADVERTISEMENT = 151, /* RFC 4286 */
	MRD_TERMINATION = 153,
	RPL_CONTROL = 155, /* RFC 6550 */
};

#define ND_OPTIONS_MAX 8
#define ND_RS_LENGTH   8
#define ARP_SENDER     14

/*
 * A flag beside where: the frame passes. One number has the program in bits 0
 * to 7, this flag in bit 9, and the result from bit 16 on: functions that are
 * verified once take few arguments.
 */
#define JUDGE_OBSERVED (1 << 9)

/*
 * In the control block of an observed frame, which the observer and the guards
 * of the pods beside see again: it was recorded. cb[4] lies behind what macvlan
 * and ipvlan keep there.
 */
#define JUDGE_RECORDED 0x464c4f31

/* The MACs of the devices of a segment, to which bridges do not forward. */
static __always_inline bool judge_is_to_bridge(const struct mac *to)
{
	if (to->part[0] == bpf_htons(0x0180)) /* IEEE 802.1Q, 8.6.3 */
		return to->part[1] == bpf_htons(0xc200) &&
		       !(to->part[2] & bpf_htons(0xff00));
	return to->part[0] == bpf_htons(0x0100) && /* CDP, VTP, PVST+ */
	       to->part[1] == bpf_htons(0x0ccc);
}

/* Frames for the devices of a segment, and LLC. */
static __always_inline bool judge_is_bridge(const struct frame *f,
					    const struct mac *to)
{
	__u16 proto = bpf_ntohs(f->proto);

	return proto < ETH_P_802_3_MIN || proto == ETH_P_LLDP ||
	       proto == ETH_P_SLOW || proto == ETH_P_PAE ||
	       judge_is_to_bridge(to);
}

static __always_inline bool judge_is_tagged(const struct __sk_buff *skb,
					    const struct frame *f)
{
	return f->l3 != ETH_HLEN || skb->vlan_present ||
	       frame_is_vlan(f->proto) || f->proto == bpf_htons(ETH_P_QINQ1) ||
	       f->proto == bpf_htons(ETH_P_QINQ2);
}

/* The Ethernet header. A host link has other MACs, which nobody learns. */
__noinline int judge_ether(struct __sk_buff *skb, __u32 slot, __u32 where,
			   __u32 l3, __u32 proto)
{
	struct suspect who = suspect_of(slot, where);
	struct frame f = { .l3 = l3, .proto = proto };
	struct frame_macs macs;

	if (judge_is_tagged(skb, &f) && !(who.sources & SOURCES_TAGGED))
		return DROP_TAGGED;
	macs = frame_macs_of(skb);
	if (judge_is_bridge(&f, &macs.to) && !(who.sources & SOURCES_BRIDGE))
		return DROP_BRIDGE;
	return who.on_link || source_mac_is_own(&who, &macs.from) ? ALLOWED
								  : DROP_ETHER;
}

/* On a host link the pod has another MAC and no address of its own. */
static __always_inline bool judge_binds_mac(const struct suspect *who)
{
	return who->sources && !who->on_link;
}

static __always_inline bool judge_is_speaker(const struct suspect *who,
					     const struct mac *mac)
{
	return !judge_binds_mac(who) || source_mac_is_own(who, mac);
}

__noinline int judge_arp(struct __sk_buff *skb, __u32 slot, __u32 where,
			 __u32 l3)
{
	struct suspect who = suspect_of(slot, where);
	struct frame f = { .l3 = l3 };
	enum result why = ALLOWED, then;
	enum clarity clarity;
	struct speech s;

	clarity = arp_parse(skb, &f, &s);
	if (clarity == UNCLEAR)
		return DROP_MALFORMED;
	if (!judge_is_speaker(&who, &s.mac))
		why = DROP_SENDER_MAC;
	if (clarity == SILENT)
		return why == ALLOWED && who.sources ? DROP_UNSPECIFIED : why;
	then = source_gives(&who, &s.subject);
	if (why == ALLOWED && turn_is_missing(then) && speech_announces(&s))
		turn_ask(slot, ADDR_HALVES(&s.subject),
			 speaker_of(&s.mac, s.kind | KIND_ANNOUNCES));
	return source_worse(why, then);
}

/* Other messages are those of routers. A report may have the source 0.0.0.0. */
static __always_inline bool igmp_is_report(__u8 type)
{
	return type == 0x12 || type == 0x16 || type == 0x17 || type == 0x22;
}

/* The head of a packet of IPv4 without options: the usual case. */
struct ipv4_head {
	__u8 version, tos;
	__be16 length, id, fragment;
	__u8 ttl, proto;
	__be16 checksum;
	struct ipv4_addrs addrs;
} __attribute__((packed, aligned(2)));

/* The first bytes behind the header: of ICMP, IGMP or UDP. */
struct ipv4_upper {
	__u8 type, code;
	__be16 port;
} __attribute__((packed, aligned(2)));

#define IPV4_PLAIN  0x45
#define IPV4_HLEN   20
#define IPV4_OFFSET bpf_htons(0x1fff)
/* Not whole: more fragments follow, or an offset. */
#define IPV4_FRAGMENT bpf_htons(0x3fff)

static __always_inline enum result judge_ipv4_upper(const struct ipv4_upper *u,
						    __u8 proto, __u32 sources,
						    bool nameless)
{
	if (((proto == NEXT_ICMP &&
	      (u->type == ICMP_REDIRECT || u->type == ICMP_ROUTER)) ||
	     (proto == NEXT_IGMP && !igmp_is_report(u->type))) &&
	    !(sources & SOURCES_ROUTER))
		return DROP_ROUTER;
	if (proto == NEXT_UDP && u->port == DHCP_CLIENT &&
	    !(sources & SOURCES_DHCP_SERVER))
		return DROP_DHCP_SERVER;
	if (nameless && proto != NEXT_IGMP)
		return DROP_UNSPECIFIED;
	return ALLOWED;
}

/* Reports whether only routers send a packet to this group, or of this kind. */
static __always_inline bool judge_is_ipv4_of_router(const struct ipv4_head *ip)
{
	return router_speaks(ip->proto) ||
	       (router_hears4(ip->addrs.target) && !router_ignores(ip->proto));
}

/* The last byte of VRRP's MACs is the router's ID: RFC 5798, 7.3. */
enum vrrp_mac {
	VRRP_MAC4 = 0x0100,
	VRRP_MAC6 = 0x0200,
};

/* Reports whether the pod may send what only routers send. VRRP's second byte
 * is the router's ID: a pod that is no router has the MACs of its own ID.
 */
static __always_inline bool judge_may_route(struct __sk_buff *skb,
					    const struct suspect *who,
					    __u8 proto, bool whole, __u32 off,
					    enum vrrp_mac family)
{
	struct mac mac = { .part = { 0, bpf_htons(0x5e00) } };
	__u8 id;

	if (who->sources & SOURCES_ROUTER)
		return true;
	if (proto != NEXT_VRRP || !(who->sources & SOURCES_VRRP) || !whole ||
	    bpf_skb_load_bytes(skb, off + 1, &id, sizeof(id)))
		return false;
	mac.part[2] = bpf_htons(family | id);
	return source_mac_is_own(who, &mac);
}

/* Later fragments have no head, and the first one was judged. */
static __always_inline enum result judge_ipv4_head(struct __sk_buff *skb,
						   const struct frame *f,
						   const struct ipv4_head *ip,
						   const struct suspect *who,
						   bool nameless)
{
	__u32 off = f->l3 + (ip->version & 15) * 4;
	struct ipv4_upper u;
	bool read;

	if (judge_is_ipv4_of_router(ip) &&
	    !judge_may_route(skb, who, ip->proto,
			     !(ip->fragment & IPV4_FRAGMENT), off, VRRP_MAC4))
		return DROP_ROUTER;
	if (ip->fragment & IPV4_OFFSET)
		return nameless ? DROP_UNSPECIFIED : ALLOWED;
	if (ip->version == IPV4_PLAIN)
		read = frame_payload(skb, f, IPV4_HLEN, &u, sizeof(u));
	else
		read = !bpf_skb_load_bytes(skb, off, &u, sizeof(u));
	if (!read)
		return DROP_MALFORMED;
	return judge_ipv4_upper(&u, ip->proto, who->sources, nameless);
}

__noinline int judge_ipv4(struct __sk_buff *skb, __u32 slot, __u32 where,
			  __u32 l3)
{
	struct suspect who = suspect_of(slot, where);
	struct frame f = { .l3 = l3 };
	enum result why = ALLOWED;
	struct ipv4_head ip;
	struct addr source;
	bool nameless;

	if (!frame_payload(skb, &f, 0, &ip, sizeof(ip)))
		return DROP_MALFORMED;
	source = addr_of_v4(ip.addrs.source);
	nameless = !ip.addrs.source && judge_binds_mac(&who);
	if (!nameless)
		why = source_objection(&who, &source);
	if (who.sources &&
	    (nameless || ip.proto == NEXT_UDP || ip.proto == NEXT_ICMP ||
	     ip.proto == NEXT_IGMP || judge_is_ipv4_of_router(&ip)))
		why = source_worse(
			why, judge_ipv4_head(skb, &f, &ip, &who, nameless));
	return why;
}

/* Returns DROP_SENDER_MAC if a link-layer option names another MAC. */
__noinline int judge_nd_options(struct __sk_buff *skb, __u32 slot, __u32 off)
{
	struct suspect who = suspect_of(slot, 0);

	for (int i = 0; i < ND_OPTIONS_MAX; i++) {
		struct nd_option o;

		if (off >= skb->len)
			return ALLOWED;
		if (bpf_skb_load_bytes(skb, off, &o, sizeof(o)) || !o.length)
			return DROP_MALFORMED;
		if ((o.type == ND_OPTION_SOURCE_MAC ||
		     o.type == ND_OPTION_TARGET_MAC) &&
		    (o.length != 1 || !source_mac_is_own(&who, &o.mac)))
			return DROP_SENDER_MAC;
		off += o.length * 8;
	}
	return off >= skb->len ? ALLOWED : DROP_MALFORMED;
}

static __always_inline bool icmpv6_is_of_router(__u8 type)
{
	return type == ND_RA || type == ND_REDIRECT || type == MLD_QUERY ||
	       type == MRD_ADVERTISEMENT || type == MRD_TERMINATION ||
	       type == RPL_CONTROL;
}

/* What may have the source "::": reports of listeners, router solicitation. */
static __always_inline bool icmpv6_is_nameless(__u8 type)
{
	return type == MLD_REPORT || type == MLD_DONE || type == MLD2_REPORT ||
	       type == ND_RS;
}

/* An unsolicited NA at off that the pod may not send now. */
__noinline int judge_na_turn(struct __sk_buff *skb, __u32 slot, __u32 off,
			     __u64 high, __u64 low)
{
	struct frame_macs macs = frame_macs_of(skb);
	struct nd_option option;

	if (!(macs.to.part[0] & bpf_htons(0x0100))) /* not to all */
		return 0;
	if (nd_has_option(skb, off, ND_OPTION_TARGET_MAC, &option))
		macs.from = option.mac;
	return turn_ask(slot, high, low,
			speaker_of(&macs.from, KIND_NA | KIND_ANNOUNCES));
}

/* An ICMPv6 packet at off, of a source that is "::" if nameless. */
__noinline int judge_icmpv6(struct __sk_buff *skb, __u32 slot, __u32 where,
			    __u32 off, __u32 nameless)
{
	struct suspect who = suspect_of(slot, where);
	enum result why = ALLOWED;
	struct nd nd;
	__u8 type;

	if (bpf_skb_load_bytes(skb, off, &type, sizeof(type)))
		return DROP_MALFORMED;
	if (who.sources && icmpv6_is_of_router(type) &&
	    !(who.sources & SOURCES_ROUTER))
		return DROP_ROUTER;
	if (type == ND_NS || type == ND_NA) {
		if (bpf_skb_load_bytes(skb, off, &nd, sizeof(nd)) ||
		    addr_is_mapped(&nd.target))
			return DROP_MALFORMED;
		if (type == ND_NA || nameless)
			why = source_gives(&who, &nd.target);
		if (type == ND_NA && turn_is_missing(why))
			judge_na_turn(skb, slot, off, ADDR_HALVES(&nd.target));
		if (type == ND_NA && nameless && judge_binds_mac(&who))
			why = source_worse(why, DROP_UNSPECIFIED);
		off += sizeof(nd);
	} else if (nameless && judge_binds_mac(&who) &&
		   !icmpv6_is_nameless(type)) {
		return DROP_UNSPECIFIED;
	} else if (type == ND_RS) {
		off += ND_RS_LENGTH;
	} else {
		return ALLOWED;
	}
	if (judge_binds_mac(&who))
		why = source_worse(why, judge_nd_options(skb, slot, off));
	return why;
}

/* What is behind the header of IPv6, from next on. */
static __always_inline enum result judge_ipv6_upper(struct __sk_buff *skb,
						    const struct frame *f,
						    const struct suspect *who,
						    __u8 next, bool nameless,
						    bool to_router)
{
	struct upper u;
	__be16 port;
	__u8 type;

	if (!upper_find(skb, f->l3 + IPV6_HLEN, next, &u))
		return DROP_MALFORMED;
	if (u.proto == NEXT_ICMPV6) {
		if (u.fragment) { /* against RFC 6980 */
			if (bpf_skb_load_bytes(skb, u.off, &type, 1))
				return DROP_MALFORMED;
			if (nd_is_type(type) && type != ND_RA &&
			    type != ND_REDIRECT)
				return DROP_MALFORMED;
			if (nd_is_type(type) && !who->sources)
				return DROP_MALFORMED;
		}
		return judge_icmpv6(skb, who->slot,
				    who->on_link ? WHERE_HOST_LINK : 0, u.off,
				    nameless);
	}
	if (!who->sources)
		return ALLOWED;
	if ((to_router || router_speaks(u.proto)) &&
	    !judge_may_route(skb, who, u.proto, !u.fragment, u.off, VRRP_MAC6))
		return DROP_ROUTER;
	if (u.proto == NEXT_UDP && !(who->sources & SOURCES_DHCP_SERVER)) {
		if (bpf_skb_load_bytes(skb, u.off + 2, &port, sizeof(port)))
			return DROP_MALFORMED;
		if (port == DHCPV6_CLIENT)
			return DROP_DHCP_SERVER;
	}
	return nameless && !who->on_link ? DROP_UNSPECIFIED : ALLOWED;
}

__noinline int judge_ipv6(struct __sk_buff *skb, __u32 slot, __u32 where,
			  __u32 l3)
{
	struct suspect who = suspect_of(slot, where);
	struct frame f = { .l3 = l3 };
	enum result why = ALLOWED;
	struct addr source, target;
	bool nameless, to_router;
	struct ipv6 ip;

	if (!ipv6_read(skb, &f, &ip) ||
	    !frame_payload(skb, &f, IPV6_TARGET, &target, sizeof(target)))
		return DROP_MALFORMED;
	source = ip.source;
	if (addr_is_mapped(&source))
		return DROP_MALFORMED;
	nameless = addr_is_unspecified(&source);
	if (!nameless || who.on_link)
		why = source_objection(&who, &source);
	to_router = router_hears6(ADDR_HALVES(&target));
	if (nd_may_follow(ip.next) || ip.next == NEXT_UDP ||
	    router_speaks(ip.next) || nameless || to_router)
		why = source_worse(why, judge_ipv6_upper(skb, &f, &who, ip.next,
							 nameless, to_router));
	return why;
}

/* The address in the head of the frame, for the agent's report. */
static __always_inline void judge_address(struct __sk_buff *skb, __u32 l3,
					  __u32 proto, struct addr *a)
{
	__be32 v4 = 0;

	if (proto == bpf_htons(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes(skb, l3 + 8, a, sizeof(*a)))
			*a = (struct addr){};
		return;
	}
	if (proto == bpf_htons(ETH_P_IP))
		bpf_skb_load_bytes(skb, l3 + IPV4_SOURCE, &v4, sizeof(v4));
	else if (proto == bpf_htons(ETH_P_ARP))
		bpf_skb_load_bytes(skb, l3 + ARP_SENDER, &v4, sizeof(v4));
	*a = addr_of_v4(v4);
}

/* A slot and its segment in one number. */
static __always_inline __u64 judge_whom(__u32 slot, __u32 segment)
{
	return (__u64)segment << 32 | slot;
}

/* Records why a frame of the slot was objected to. */
__noinline int judge_record(struct __sk_buff *skb, __u64 whom, __u32 why_where,
			    __u32 l3, __u32 proto)
{
	struct mac from = frame_macs_of(skb).from;
	struct addr a = {};

	judge_address(skb, l3, proto, &a);
	offence_record(whom, whom >> 32, why_where >> 16, &a, &from,
		       why_where & 0xff, why_where & JUDGE_OBSERVED);
	return 0;
}

/* Judges a frame of a slot, and counts it if it is objected to. */
__noinline int judge(struct __sk_buff *skb, __u32 slot, __u32 where, __u32 l3,
		     __u32 proto)
{
	struct suspect who = suspect_of(slot, where);
	__u32 on_link = where & WHERE_HOST_LINK;
	enum result why = ALLOWED;
	bool observed;

	where &= 0xff;
	if (where >= WHERE_MAX)
		return DROP;
	if (who.dead)
		return drop(where, DROP_DEAD);
	if (who.sources || who.on_link)
		why = judge_ether(skb, slot, on_link, l3, proto);
	if (why == ALLOWED || source_is_soft(why)) {
		enum result then = ALLOWED;

		if (proto == bpf_htons(ETH_P_IP))
			then = judge_ipv4(skb, slot, on_link, l3);
		else if (proto == bpf_htons(ETH_P_IPV6))
			then = judge_ipv6(skb, slot, on_link, l3);
		else if (proto == bpf_htons(ETH_P_ARP))
			then = judge_arp(skb, slot, on_link, l3);
		else if (who.on_link) /* a host link: IP and ARP */
			then = DROP_UNLEASED;
		else if (frame_is_vlan(proto)) /* too many tags */
			then = DROP_MALFORMED;
		why = source_worse(why, then);
	}
	if (why == ALLOWED)
		return PASS;
	observed = source_is_soft(why) && !who.on_link &&
		   !(who.sources & SOURCES_ENFORCE);
	/* Kernels answer for an address on each interface: no offence. */
	if (who.sources && why != DROP_MAC &&
	    !(observed && skb->cb[4] == JUDGE_RECORDED))
		judge_record(skb, judge_whom(slot, who.segment),
			     (__u32)why << 16 |
				     (observed ? JUDGE_OBSERVED : 0) | where,
			     l3, proto);
	if (observed)
		skb->cb[4] = JUDGE_RECORDED;
	count(where, observed ? OBSERVED : why);
	return observed ? PASS : DROP;
}

#endif
