//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Guard: the two programs for the interfaces of pods. They enforce the leases,
 * with or without a running agent. The verifier takes tens of milliseconds for
 * them, so all pods share them: guard_entry.go has the short programs of a
 * single interface.
 */
#include "hit.h"
#include "ingress.h"
#include "local.h"
#include "probe.h"

char __license[] SEC("license") = "Dual BSD/GPL";

/*
 * True for a VF: the PF's observer may not see its unicast frames. A broadcast
 * claim can reach both, and both may ack. Set when the programs are loaded.
 */
volatile const bool verify = false;

/* A key is a value of enum where, plus GUARDS_OF_VF for a VF. */
enum guard_program {
	GUARDS = 0,
	GUARDS_OF_VF = 2,
	GUARD_PROGRAMS = 16, /* with room for later versions */
};

_Static_assert(GUARD_INGRESS < GUARDS_OF_VF && GUARD_EGRESS < GUARDS_OF_VF,
	       "the keys are distinct");

/*
 * The first program on an interface writes the slot to cb[0] and calls one of
 * these. Linux keeps nothing in cb[0] beyond the hook.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, GUARD_PROGRAMS);
	__type(key, enum guard_program);
	__type(value, __u32);
} guards SEC(".maps");

/*
 * The filters on the node's end of a host link give their frames this class, so
 * one pair of programs guards both interfaces of a pod.
 */
volatile const __u16 host_link_class = 0;

/*
 * A tcx link does not set the class. On the pod's interface it has the last two
 * bytes of an address that the pod puts into an IP option (struct
 * inet_skb_parm), so the class alone proves nothing.
 */
static __always_inline bool guard_is_on_link(const struct __sk_buff *skb,
					     const struct slot *s)
{
	return skb->tc_classid == host_link_class &&
	       skb->ifindex == s->host_link;
}

/*
 * A pod must not send claims. The only frame of this type that may leave is the
 * ack of our own ingress program on a VF. The tag proves that a kernel signed
 * it. Repeating an ack is harmless.
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

/* Where the MAC of a slot is, by one of its addresses. */
enum whereabouts {
	MAC_UNKNOWN, /* none, or one that the slot has for its turn */
	MAC_HERE,
	MAC_LENT, /* fenced: the holder elsewhere may have the MAC */
};

static __always_inline enum whereabouts
guard_find_mac(__u32 slot, __u32 segment, const struct addr *a)
{
	struct lease_key key = lease_key_of(segment, a);
	const struct lease *l = lease_of(&key);

	if (!l || l->slot != slot)
		return MAC_HERE;
	if (l->flags & LEASE_TURNS)
		return MAC_UNKNOWN;
	return l->flags & LEASE_SHARED_MAC && state_is_fenced(&key, l)
		       ? MAC_LENT
		       : MAC_HERE;
}

/*
 * Reports whether the MAC of a slot is at another node: the holder of its
 * address there has it too. Any frame, as of MLD or of an address in turn,
 * would teach the switches the port of this node (IEEE 802.1Q, 8.7).
 */
__noinline int guard_mac_is_elsewhere(__u32 slot)
{
	enum whereabouts four = MAC_UNKNOWN, six = MAC_UNKNOWN;
	const struct slot *s = slot_of(slot);
	struct addr a;

	if (!s)
		return 0;
	if (s->leased4) {
		a = addr_of_v4(s->leased4);
		four = guard_find_mac(slot, s->segment, &a);
	}
	a = s->leased6;
	if (!addr_is_unspecified(&a))
		six = guard_find_mac(slot, s->segment, &a);
	return four != MAC_HERE && six != MAC_HERE &&
	       (four == MAC_LENT || six == MAC_LENT);
}

SEC("tc")
int guard_egress(struct __sk_buff *skb)
{
	__u32 slot = skb->cb[0];
	const struct slot *s = slot_of(slot);
	__u32 where = GUARD_EGRESS;
	struct frame f;

	if (!frame_open(skb, &f))
		return drop(GUARD_EGRESS, DROP_MALFORMED);
	if (f.proto == bpf_htons(CLAIM_ETHERTYPE))
		return guard_egress_claim(skb, &f);
	if (!s || s->status != SLOT_ALIVE)
		return drop(GUARD_EGRESS, DROP_DEAD);
	/* Only the agent sends probes, and never from a pod's interface. */
	if (skb->mark == PROBE_MARK)
		skb->mark = 0;
	if (guard_is_on_link(skb, s))
		where |= WHERE_HOST_LINK;
	if (usual_is(skb, &f, s, where & WHERE_HOST_LINK))
		return PASS;
	if (gate_is_open() && !(where & WHERE_HOST_LINK) &&
	    guard_mac_is_elsewhere(slot))
		return drop(GUARD_EGRESS, DROP_FENCED);
	return judge(skb, slot, where, f.l3, f.proto);
}

/*
 * The MAC in ARP and ND must be the holder's. A foreign MAC for our own address
 * is a conflict and is reported. For a sibling's address it is dropped, to keep
 * it out of our neighbour table. Only the observer records tentative frames:
 * two probes count as a conflict, and a card carries our own to its VFs. Some
 * cards return what a VF has sent: its kernel would take that for a duplicate
 * address (RFC 4862, 5.4.4).
 */
__noinline int guard_hears(__u64 high, __u64 low, __u64 by, __u32 slot,
			   __u32 segment)
{
	struct speech said = speech_of(high, low, by), *s = &said;
	struct lease_key key = lease_key_of(segment, &s->subject);
	const struct lease *l = lease_of(&key);

	if (!l || !lease_is_held(l))
		return ALLOWED;
	if (!lease_is_foreign(l, &s->mac))
		return verify && l->slot == slot ? DROP_MAC : ALLOWED;
	if (l->slot == slot) {
		if (!speech_is_tentative(s))
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

/* Reports whether a frame is for an address of ours that is fenced. */
__noinline int guard_is_for_fenced(__u64 high, __u64 low, __u32 slot,
				   __u32 segment)
{
	const struct addr to = addr_of(high, low);
	struct lease_key key = lease_key_of(segment, &to);
	const struct lease *l = lease_of(&key);

	return l && l->slot == slot && state_is_fenced(&key, l);
}

/*
 * Reports whether a frame is of a fenced address of this node. The frames of
 * the new holder elsewhere must reach us: it uses another MAC, or the lease
 * says that it may use this one.
 */
__noinline int guard_is_of_fenced(__u64 high, __u64 low, __u64 by,
				  __u32 segment)
{
	const struct speech s = speech_of(high, low, by);
	struct lease_key key = lease_key_of(segment, &s.subject);
	const struct lease *l = lease_of(&key);

	return l && lease_is_held(l) && !lease_is_foreign(l, &s.mac) &&
	       !(l->flags & LEASE_SHARED_MAC) && state_is_fenced(&key, l);
}

/* In a function of its own, because the stack of the kernel is small. */
static __noinline int guard_hear(struct __sk_buff *skb, const struct frame *f,
				 const struct mac *from, __u32 slot,
				 __u32 segment)
{
	enum result objection = ALLOWED;
	bool open = gate_is_open();
	enum clarity clarity;
	struct speech s;
	__u64 by;

	s.mac = *from;
	if (f->proto == bpf_htons(ETH_P_ARP))
		clarity = arp_parse(skb, f, &s);
	else if (f->proto == bpf_htons(ETH_P_IPV6) &&
		 (open || ipv6_may_be_nd(skb, f)))
		clarity = ipv6_parse(skb, f, &s, true);
	else if (f->proto == bpf_htons(ETH_P_IP) && open)
		clarity = ipv4_parse(skb, f, &s);
	else
		return frame_is_vlan(f->proto)
			       ? drop(GUARD_INGRESS, DROP_MALFORMED)
			       : PASS;
	if (clarity != CLEAR)
		return PASS; /* the pod's own stack drops broken frames */

	by = speaker_of(&s.mac, s.kind);
	if (s.kind != KIND_IP)
		objection =
			guard_hears(ADDR_HALVES(&s.subject), by, slot, segment);
	/* An open gate: an address may be fenced. */
	if (objection == ALLOWED && open &&
	    (guard_is_for_fenced(ADDR_HALVES(&s.target), slot, segment) ||
	     guard_is_of_fenced(ADDR_HALVES(&s.subject), by, segment)))
		objection = DROP_FENCED;
	if (objection != ALLOWED)
		return drop(GUARD_INGRESS, objection);
	return PASS;
}

/*
 * No untagged claim passes to a pod's stack. Packet sockets on a VF see it
 * before tc.
 */
static __always_inline int guard_ingress_claim(struct __sk_buff *skb, __u32 l3,
					       __u32 slot, __u32 segment)
{
	int verdict = DROP;

	if (verify)
		verdict = ingress_claim(skb, l3, GUARD_INGRESS, slot, segment);
	return verdict == PASS ? DROP : verdict;
}

SEC("tc")
int guard_ingress(struct __sk_buff *skb)
{
	__u32 slot = skb->cb[0];
	const struct slot *s = slot_of(slot), *local;
	struct frame f;
	struct mac from;
	__u32 index;

	if (!s || s->status != SLOT_ALIVE)
		return drop(GUARD_INGRESS, DROP_DEAD);
	if (!frame_open(skb, &f))
		return drop(GUARD_INGRESS, DROP_MALFORMED);
	from = frame_macs_of(skb).from;
	index = local_find(s->segment, &from, &local);
	if (local_judge(skb, &f, index, local, s->segment, GUARD_INGRESS) ==
	    DROP)
		return DROP;
	if (f.tagged || usual_is_silent(skb, &f))
		return PASS;
	if (f.proto == bpf_htons(CLAIM_ETHERTYPE))
		return guard_ingress_claim(skb, f.l3, slot, s->segment);
	return guard_hear(skb, &f, &from, slot, s->segment);
}
