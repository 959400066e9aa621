//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Guard: the two programs on a pod's interface. They enforce the leases, with
 * or without a running agent.
 */
#include "arp.h"
#include "hit.h"
#include "ingress.h"
#include "ipv4.h"
#include "ipv6.h"
#include "probe.h"
#include "slot.h"

char __license[] SEC("license") = "Dual BSD/GPL";

/* Set when the programs are loaded for one pod interface. */
volatile const __u32 slot = 0;
volatile const bool verify = false; /* a VF: no observer sees its frames */
volatile const bool source_guard = false; /* only leased sources may leave */

/*
 * The filters on the node's end of a host link give their frames this class, so
 * one pair of programs guards both interfaces of a pod. A tcx link does not set
 * the field: an equal value by chance only makes the check stricter. Keep in
 * sync with attach/hostlink.go.
 */
#define CLASS_HOST_LINK 0xf11e

/* Which addresses a frame may use. */
enum rule {
	RULE_SHARED, /* not those of others */
	RULE_LEASED, /* only leased ones, and those that are never leased */
	RULE_STRICT, /* only leased ones: a host link */
};

static __always_inline enum rule guard_rule(const struct __sk_buff *skb)
{
	if (skb->tc_classid == CLASS_HOST_LINK)
		return RULE_STRICT;
	return source_guard ? RULE_LEASED : RULE_SHARED;
}

/* Returns why this guard's pod may not use the address, or ALLOWED. */
static __always_inline enum result guard_objection(const struct addr *a,
						   enum rule rule)
{
	struct lease_key key = lease_key_of(a);
	const struct lease *l;

	if (rule != RULE_STRICT && addr_is_exempt(a))
		return ALLOWED;
	l = lease_of(&key);
	if (!l || !lease_is_held(l))
		return rule == RULE_SHARED ? ALLOWED : DROP_UNLEASED;
	if (l->slot != slot)
		return DROP_SLOT;
	return state_is_fenced(&key, l) ? DROP_FENCED : ALLOWED;
}

/*
 * A pod must not send claims. The only frame of this type that may leave is the
 * ack of our own ingress program on a VF. Its tag proves where it comes from.
 */
static __always_inline int guard_egress_claim(struct __sk_buff *skb,
					      const struct frame *f)
{
	struct claim c;

	if (verify && !bpf_skb_load_bytes(skb, f->l3, &c, sizeof(c)) &&
	    claim_is_ack(&c) && claim_has_magic(&c) &&
	    claim_verify(&c) != CLAIM_NO_KEY)
		return PASS;
	return drop(GUARD_EGRESS, CLAIM_FROM_POD);
}

static __always_inline int guard_egress_from(const struct addr *source,
					     enum rule rule)
{
	enum result objection = guard_objection(source, rule);

	return objection == ALLOWED ? PASS : drop(GUARD_EGRESS, objection);
}

/* ARP and ND: the pod must be allowed to use both sender and subject. */
static __always_inline int guard_egress_speech(enum clarity clarity,
					       const struct speech *s,
					       enum rule rule)
{
	enum result objection;

	if (clarity == UNCLEAR)
		return drop(GUARD_EGRESS, DROP_MALFORMED);
	if (clarity == SILENT)
		return PASS;
	objection = guard_objection(&s->sender, rule);
	if (objection == ALLOWED && speech_has_own_subject(s))
		objection = guard_objection(&s->subject, rule);
	return objection == ALLOWED ? PASS : drop(GUARD_EGRESS, objection);
}

static __always_inline int
guard_egress_ipv4(struct __sk_buff *skb, const struct frame *f, enum rule rule)
{
	struct ipv4_addrs ip;
	struct addr source;

	if (!ipv4_read(skb, f, &ip))
		return drop(GUARD_EGRESS, DROP_MALFORMED);
	source = addr_of_v4(ip.source);
	return guard_egress_from(&source, rule);
}

static __always_inline int
guard_egress_ipv6(struct __sk_buff *skb, const struct frame *f, enum rule rule)
{
	struct addr source;
	struct speech s;
	struct ipv6 ip;

	if (!ipv6_read(skb, f, &ip))
		return drop(GUARD_EGRESS, DROP_MALFORMED);
	source = ip.source;
	if (nd_may_follow(ip.next) || addr_is_mapped(&source))
		return guard_egress_speech(ipv6_parse(skb, f, &s, false), &s,
					   rule);
	return guard_egress_from(&source, rule);
}

static __always_inline int
guard_egress_arp(struct __sk_buff *skb, const struct frame *f, enum rule rule)
{
	struct speech s;

	return guard_egress_speech(arp_parse(skb, f, &s), &s, rule);
}

/*
 * Tagged frames are checked too: a switch may treat the tag of its native VLAN
 * as no tag.
 */
SEC("tc")
int guard_egress(struct __sk_buff *skb)
{
	enum rule rule = guard_rule(skb);
	struct frame f;

	if (!frame_open(skb, &f))
		return drop(GUARD_EGRESS, DROP_MALFORMED);
	if (f.proto == bpf_htons(CLAIM_ETHERTYPE))
		return guard_egress_claim(skb, &f);
	if (slot_is_dead(slot))
		return drop(GUARD_EGRESS, DROP_DEAD);
	/* Only the agent sends probes, and never from a pod's interface. */
	if (skb->mark == PROBE_MARK)
		skb->mark = 0;
	if (f.proto == bpf_htons(ETH_P_IP))
		return guard_egress_ipv4(skb, &f, rule);
	if (f.proto == bpf_htons(ETH_P_IPV6))
		return guard_egress_ipv6(skb, &f, rule);
	if (f.proto == bpf_htons(ETH_P_ARP))
		return guard_egress_arp(skb, &f, rule);
	/* A host link carries nothing but IP. */
	return rule == RULE_STRICT ? drop(GUARD_EGRESS, DROP_UNLEASED) : PASS;
}

/*
 * The MAC in ARP and ND must be the holder's. A foreign MAC for our own address
 * is a conflict and is reported. For a sibling's address it is dropped, to keep
 * it out of our neighbour table. The observer records tentative frames, or this
 * program does on a VF. It must not be both: two probes count as a conflict.
 */
static __always_inline enum result guard_hears(const struct speech *s)
{
	struct lease_key key = lease_key_of(&s->subject);
	const struct lease *l = lease_of(&key);

	if (!l || !lease_is_held(l) || !lease_is_foreign(l, &s->mac))
		return ALLOWED;
	if (l->slot == slot) {
		if (verify || !speech_is_tentative(s))
			hit_record(&key, l, s, bpf_ktime_get_boot_ns(),
				   GUARD_INGRESS);
		return ALLOWED;
	}
	/* The address of a dead or fenced sibling has a new holder elsewhere.
	 */
	if (speech_is_tentative(s) || slot_is_dead(l->slot) ||
	    state_is_fenced(&key, l))
		return ALLOWED;
	return DROP_MAC;
}

/*
 * Runs while an address is fenced. Drops frames to our own fenced address and
 * frames from a fenced sibling. The frames of the new holder elsewhere must
 * reach us: it uses another MAC, or the lease says that it may use this one.
 */
static __always_inline enum result guard_fences(const struct speech *s)
{
	struct lease_key to = lease_key_of(&s->target);
	struct lease_key from = lease_key_of(&s->subject);
	const struct lease *l = lease_of(&to);

	if (l && l->slot == slot && state_is_fenced(&to, l))
		return DROP_FENCED;
	l = lease_of(&from);
	if (l && lease_is_held(l) && !lease_is_foreign(l, &s->mac) &&
	    !(l->flags & LEASE_SHARED_MAC) && state_is_fenced(&from, l))
		return DROP_FENCED;
	return ALLOWED;
}

SEC("tc")
int guard_ingress(struct __sk_buff *skb)
{
	enum result objection = ALLOWED;
	bool open = gate_is_open();
	enum clarity clarity;
	struct speech s;
	struct frame f;
	int verdict;

	if (slot_is_dead(slot))
		return drop(GUARD_INGRESS, DROP_DEAD);
	if (!frame_open(skb, &f))
		return drop(GUARD_INGRESS, DROP_MALFORMED);
	if (f.tagged)
		return PASS;
	if (f.proto == bpf_htons(CLAIM_ETHERTYPE)) {
		if (!verify)
			return DROP;
		verdict = ingress_claim(skb, &f, GUARD_INGRESS);
		return verdict == PASS ? DROP : verdict;
	}

	s.mac = frame_macs_of(skb).from;
	if (f.proto == bpf_htons(ETH_P_ARP))
		clarity = arp_parse(skb, &f, &s);
	else if (f.proto == bpf_htons(ETH_P_IPV6) &&
		 (open || ipv6_may_be_nd(skb, &f)))
		clarity = ipv6_parse(skb, &f, &s, true);
	else if (f.proto == bpf_htons(ETH_P_IP) && open)
		clarity = ipv4_parse(skb, &f, &s);
	else
		return PASS;
	if (clarity != CLEAR)
		return PASS; /* the pod's own stack drops broken frames */

	if (s.kind != KIND_IP)
		objection = guard_hears(&s);
	if (objection == ALLOWED && open)
		objection = guard_fences(&s);
	if (objection != ALLOWED)
		return drop(GUARD_INGRESS, objection);
	return PASS;
}
