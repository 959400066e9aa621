//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sockets: refuses guarded pods the sockets whose frames skip the guard. Those
 * of AF_PACKET with PACKET_QDISC_BYPASS (packet_direct_xmit) and of AF_XDP
 * (xsk_xmit) do not pass tc, so they skip the guard of their interface. One
 * program at the root of the cgroup v2 hierarchy judges all sockets of the
 * node, by their network namespace. Linux runs it for io_uring too, but not for
 * a call of a 32-bit program (do_sock_setsockopt, compat).
 */
#include "netns.h"
#include "slot.h"

char __license[] SEC("license") = "Dual BSD/GPL";

/* The numbers of linux/socket.h, linux/if_packet.h and linux/if_xdp.h. */
enum level {
	SOL_PACKET = 263,
	SOL_XDP = 283,
};

enum option {
	PACKET_QDISC_BYPASS = 20,
	XDP_TX_RING = 3, /* a socket without memory may share another's */
	XDP_UMEM_REG = 4,
};

enum socket_limit {
	OPTION_COPIED = 4096, /* the bytes of an option that a program sees */
};

enum socket_flag {
	SOCKETS_ALLOWED = 1 << 0, /* a pool allows them to the slot */
	SOCKETS_BEFORE = 1 << 1,  /* raw sockets were there before the entry */
};

/* The network namespace of a slot. Only user space uses it. */
struct socket_guard {
	__u64 netns; /* as netns_of() has it */
	__u32 flags;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32); /* the slot */
	__type(value, struct socket_guard);
} socket_guards SEC(".maps");

/*
 * The namespaces with a slot that may not have these sockets; the value is not
 * used.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, __u8);
} guarded_netns SEC(".maps");

/* Keep these types in the object's BTF: the Go side has its numbers from it. */
const struct btf {
	enum socket_flag socket_flag;
	struct socket_guard socket_guard;
} *const btf = 0;

static __always_inline bool skips_guard(struct bpf_sockopt *ctx)
{
	const __u32 *value = ctx->optval;

	if (ctx->level == SOL_XDP)
		return ctx->optname == XDP_UMEM_REG ||
		       ctx->optname == XDP_TX_RING;
	if (ctx->level != SOL_PACKET || ctx->optname != PACKET_QDISC_BYPASS)
		return false;
	/* DPDK sets the option to 0, which skips nothing. */
	return (void *)(value + 1) > ctx->optval_end || *value;
}

/*
 * The network namespace of the socket: its cookie, which the kernel never uses
 * again. Before Linux 5.15 there is none here, and the inode stands for it.
 */
static __always_inline __u64 netns_of(struct bpf_sockopt *ctx)
{
	__u64 net;

	if (!net_inum)
		return bpf_get_netns_cookie(ctx);
	net = netns_of_socket(ctx->sk);
	return net ? netns_inode(net) : 0;
}

SEC("cgroup/setsockopt")
int socket_setsockopt(struct bpf_sockopt *ctx)
{
	__u64 netns;

	/* Otherwise older kernels refuse the tables of iptables. */
	if (ctx->optlen > OPTION_COPIED)
		ctx->optlen = 0; /* take the caller's value */
	if (!skips_guard(ctx))
		return 1;
	netns = netns_of(ctx);
	return !bpf_map_lookup_elem(&guarded_netns, &netns);
}
