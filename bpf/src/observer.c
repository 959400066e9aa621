//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Observer: the two programs on a segment's parent. They see the frames of all
 * pods on the parent and of all hosts outside, fence claimed addresses and send
 * acks.
 */
#include "hit.h"
#include "ingress.h"
#include "probe.h"
#include "sender.h"
#include "sighting.h"
#include "stranger.h"
#include "uplink.h"

char __license[] SEC("license") = "Dual BSD/GPL";

/* The parent's ifindex; set when the programs are loaded. */
volatile const __u32 segment = 0;

/* Keep these types in the object's BTF: the Go side has its numbers from it. */
const struct btf {
	struct claim claim;
	struct event event;
	enum claim_wire claim_wire;
	enum event_type event_type;
	enum kind kind;
	enum lease_flag lease_flag;
	enum local_index_entry local_index_entry;
	enum local_segment local_segment;
	enum local_slot local_slot;
	enum network_limit network_limit;
	enum parent_flag parent_flag;
	enum probe probe;
	enum result result;
	enum slot_flag slot_flag;
	enum slot_limit slot_limit;
	enum slot_status slot_status;
	enum source_family source_family;
	enum source_flag source_flag;
	enum source_prefix source_prefix;
	enum where where;
} *const btf = 0;

/*
 * Records the speaker of an address, and a hit if the address is leased or
 * watched here. Each host has a link-local address, and only those of gateways
 * matter, which advertise them. by has where in the high byte of the kind.
 */
__noinline int observe(__u64 high, __u64 low, __u64 by)
{
	struct speech said = speech_of(high, low, by), *s = &said;
	struct lease_key key = lease_key_of(segment, &s->subject);
	const struct lease *l = lease_of(&key);
	enum where where = s->kind >> 8;
	__u16 announces;
	__u64 now;

	announces = s->kind & KIND_ANNOUNCES;
	s->kind &= 0x7f;
	if (addr_is_unspecified(&s->subject) ||
	    (addr_is_link_local(&s->subject) && s->kind != KIND_NA && !l))
		return 0;
	now = bpf_ktime_get_boot_ns();
	count(where, SIGHTING);
	sighting_record(&key, s, now);
	s->kind |= announces;
	if (l)
		hit_record(&key, l, s, now, where);
	return 0;
}

SEC("tc")
int observer_ingress(struct __sk_buff *skb)
{
	enum clarity clarity;
	struct speech s;
	struct frame f;
	struct mac from;

	if (!frame_open(skb, &f))
		return PASS;
	if (f.tagged) /* each VLAN has an observer of its own */
		return f.proto == bpf_htons(CLAIM_ETHERTYPE)
			       ? uplink_claim(skb, &f, segment)
			       : PASS;
	if (f.proto == bpf_htons(CLAIM_ETHERTYPE))
		return ingress_claim(skb, f.l3, OBSERVER_INGRESS, 0, segment);
	if (skb->mark == PROBE_MARK) {
		skb->mark = 0; /* our own probe, reflected to the children */
		return PASS;
	}
	from = frame_macs_of(skb).from;
	s.mac = from;
	if (f.proto == bpf_htons(ETH_P_ARP))
		clarity = arp_parse(skb, &f, &s);
	else if (f.proto == bpf_htons(ETH_P_IPV6) && ipv6_may_be_nd(skb, &f))
		clarity = ipv6_parse(skb, &f, &s, true);
	else
		return PASS;
	/*
	 * The sender of a probe is the host that sends it (RFC 5227, 1.1). A
	 * host that uses an address may send by a proxy or a virtual MAC.
	 */
	if (clarity == UNCLEAR ||
	    (clarity == CLEAR && speech_is_tentative(&s) &&
	     !mac_equal(&s.mac, &from))) {
		count(OBSERVER_INGRESS, MALFORMED);
		return PASS;
	}
	/*
	 * Some cards return the parent's probes. The answer of an ipvlan pod
	 * of this node has the parent's MAC as well, and counts.
	 */
	if (clarity == CLEAR && s.kind != KIND_IP &&
	    !(speech_is_tentative(&s) &&
	      hearing_is_echo(&s.mac, parent_of(segment))))
		observe(ADDR_HALVES(&s.subject),
			speaker_of(&s.mac, s.kind | speech_announces(&s) |
						   OBSERVER_INGRESS << 8));
	return PASS;
}

/*
 * A claim of this node does not come back to ingress, so it fences local
 * zombies here. No ack is needed: the agent knows its own slots.
 */
__noinline int egress_claim(struct __sk_buff *skb, __u32 l3)
{
	const struct frame f = { .l3 = l3 };
	const struct lease *l;
	struct claimed c;

	if (!fence_read(skb, &f, &c, segment, OBSERVER_EGRESS))
		return PASS;
	if (sender_netns(skb))
		return drop(OBSERVER_EGRESS, CLAIM_FROM_POD);
	if (claim_is_ack(&c.claim))
		return PASS;
	l = fence_lease(&c);
	if (!l)
		count(OBSERVER_EGRESS, CLAIM_NOT_HELD);
	else if (c.token > l->token)
		fence_raise(&c, l, OBSERVER_EGRESS);
	else
		count(OBSERVER_EGRESS,
		      c.token == l->token ? CLAIM_EQUAL : CLAIM_OLD);
	return PASS;
}

/*
 * Raw sockets with PACKET_QDISC_BYPASS and stacked macvlans bypass the guard.
 * Their frames still pass this hook. netns: only leases of this network
 * namespace count; 0: all.
 */
__noinline int egress_objection(__u64 high, __u64 low, __u32 netns)
{
	const struct addr a = addr_of(high, low);
	struct lease_key key = lease_key_of(segment, &a);
	const struct lease *l = lease_of(&key);

	const struct slot *s = l ? slot_of(l->slot) : 0;

	if (!l || !lease_is_held(l) || addr_is_exempt(&a) ||
	    (netns && (!s || s->netns != netns)))
		return ALLOWED;
	if (slot_is_dead(l->slot))
		return DROP_DEAD;
	return state_is_fenced(&key, l) ? DROP_FENCED : ALLOWED;
}

/*
 * Reports whether a local pod holds the address and the MAC belongs neither to
 * that pod nor to the parent. The node forwards with the parent's MAC.
 */
__noinline int egress_is_pretender(struct __sk_buff *skb, __u64 high, __u64 low,
				   __u64 by)
{
	const struct speech s = speech_of(high, low, by);
	struct lease_key key = lease_key_of(segment, &s.subject);
	const struct lease *l = lease_of(&key);
	const struct parent *parent;
	const __u32 *sender;

	if (!l || !lease_is_held(l) || speech_is_tentative(&s) ||
	    !lease_is_foreign(l, &s.mac))
		return false;
	sender = local_of(segment, &s.mac);
	if (s.kind == KIND_IP && sender && slot_is_beside(l->slot, *sender))
		return false; /* by another interface of the pod */
	parent = parent_of(segment);
	return !parent || !mac_equal(&parent->mac, &s.mac) || sender_netns(skb);
}

/*
 * Reports whether a frame with the mark is a probe of the agent. A pod may set
 * the mark too, past its guard.
 */
static __always_inline bool egress_is_probe(struct __sk_buff *skb,
					    const struct speech *s,
					    const struct parent *parent,
					    const struct mac *from)
{
	return speech_is_tentative(s) &&
	       (!parent || mac_equal(&parent->mac, from)) && !sender_netns(skb);
}

/* A macvlan parent's own frames do not reach its children otherwise. */
static __always_inline int egress_reflect(struct __sk_buff *skb,
					  const struct parent *parent)
{
	/* A bridge port has no such children, and its bridge would loop. */
	if (!parent || parent->flags & PARENT_BRIDGE_PORT)
		return PASS;
	if (!bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		count(OBSERVER_EGRESS, REFLECTED);
	return PASS;
}

/*
 * In a function of its own, because the stack of the kernel is small. A tag
 * means another segment, but a switch may remove it. So a tag must not hide a
 * fenced address.
 */
static __noinline int egress_hear(struct __sk_buff *skb, const struct frame *f,
				  const struct mac *from)
{
	__u32 netns = f->tagged ? sender_netns(skb) : 0;
	enum result objection = ALLOWED;
	bool open = gate_is_open();
	enum clarity clarity;
	struct speech s;

	if (f->tagged && !netns)
		return PASS;
	if (f->proto == bpf_htons(CLAIM_ETHERTYPE))
		return egress_claim(skb, f->l3);
	s.mac = *from;
	if (f->proto == bpf_htons(ETH_P_ARP))
		clarity = arp_parse(skb, f, &s);
	else if (f->proto == bpf_htons(ETH_P_IPV6) &&
		 (open || ipv6_may_be_nd(skb, f)))
		clarity = ipv6_parse(skb, f, &s, false);
	else if (f->proto == bpf_htons(ETH_P_IP) && open)
		clarity = ipv4_parse(skb, f, &s);
	else if (frame_is_vlan(f->proto))
		clarity = UNCLEAR;
	else
		return PASS;
	if (clarity == UNCLEAR && open)
		return drop(OBSERVER_EGRESS, DROP_MALFORMED);
	if (clarity != CLEAR)
		return PASS;
	if (skb->mark == PROBE_MARK) {
		const struct parent *parent = parent_of(segment);

		if (egress_is_probe(skb, &s, parent, from))
			return egress_reflect(skb, parent);
	}

	if (open) {
		objection = egress_objection(ADDR_HALVES(&s.sender), netns);
		if (objection == ALLOWED && speech_has_own_subject(&s))
			objection = egress_objection(ADDR_HALVES(&s.subject),
						     netns);
		if (objection != ALLOWED)
			return drop(OBSERVER_EGRESS, objection);
	}
	if (f->tagged)
		return PASS;
	if (s.kind != KIND_IP)
		observe(ADDR_HALVES(&s.subject),
			speaker_of(&s.mac, s.kind | speech_announces(&s) |
						   OBSERVER_EGRESS << 8));
	if (open && egress_is_pretender(skb, ADDR_HALVES(&s.subject),
					speaker_of(&s.mac, s.kind)))
		return drop(OBSERVER_EGRESS, DROP_MAC);
	return PASS;
}

SEC("tc")
int observer_egress(struct __sk_buff *skb)
{
	const struct slot *s;
	struct frame f = {};
	struct mac from;
	__u32 slot;
	bool whole;

	whole = frame_open(skb, &f); /* else it ends within a tag */
	from = frame_macs_of(skb).from;
	slot = local_find(segment, &from, &s);
	if (slot == LOCAL_STRANGER ||
	    (slot == LOCAL_NODE && sender_netns(skb))) {
		slot = stranger_slot(skb, &f, &from, segment);
		if (slot == LOCAL_STRANGER)
			return stranger_drop(skb, &f, segment);
		s = slot ? slot_of(slot) : 0;
	}
	if (local_judge(skb, &f, slot, s, segment, OBSERVER_EGRESS) == DROP)
		return DROP;
	if (!whole || usual_is_silent(skb, &f))
		return PASS;
	return egress_hear(skb, &f, &from);
}
